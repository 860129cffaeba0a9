/** A regular expression of a schema that is not accepted; `expected` says what would be. */
export class PatternError extends Error {
  override readonly name = "PatternError";
  constructor(readonly expected: string) {
    super(`The pattern must be ${expected}.`);
  }
}

/** A text took more steps to match than any honest one needs. */
export class PatternStepsError extends Error {
  override readonly name = "PatternStepsError";
}
