/** One place of a compiled file, and what stands there in a mutant. */
export interface Replacement {
  /** Path in the repository. */
  readonly file: string;
  /** Is in the file exactly once. */
  readonly text: string;
  readonly by: string;
}

/** The changed text. @throws Error when the place is not there, or not only once: a mutant that changes nothing proves nothing. */
export function replaced(source: string, { file, text, by }: Replacement): string {
  const parts = source.split(text);
  if (parts.length !== 2)
    throw new Error(`${file} has ${parts.length - 1} places with ${JSON.stringify(text)}, not one: bring the mutant up to date`);
  return parts.join(by);
}
