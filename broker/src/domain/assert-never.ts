/** Ends an exhaustive switch: a new case that nobody handles does not compile. */
export function assertNever(value: never): never {
  throw new Error(`unexpected ${JSON.stringify(value)}`);
}
