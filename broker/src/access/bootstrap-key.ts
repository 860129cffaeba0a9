/** Shortest key that an operator may choose, in characters. */
export const BOOTSTRAP_KEY_CHARACTERS_MIN = 24;
/** Longest, as for every credential. */
export const BOOTSTRAP_KEY_CHARACTERS_MAX = 512;
const DISTINCT_CHARACTERS_MIN = 8;

export type BootstrapKeyErrorCode = "too_short" | "too_long" | "not_printable" | "too_uniform";

/** A start-up fault; never names the key. */
export class BootstrapKeyError extends Error {
  override readonly name = "BootstrapKeyError";
  constructor(
    readonly code: BootstrapKeyErrorCode,
    message: string,
  ) {
    super(message);
  }
}

/** Refuses keys that could be guessed, or that an HTTP header cannot carry. Throws {@link BootstrapKeyError}. */
export function checkBootstrapKey(key: string): void {
  const remedy = "Make one with: openssl rand -base64 32";
  if (key.length < BOOTSTRAP_KEY_CHARACTERS_MIN) {
    throw new BootstrapKeyError(
      "too_short",
      `The bootstrap key has ${key.length} characters; it needs at least ${BOOTSTRAP_KEY_CHARACTERS_MIN}. ${remedy}`,
    );
  }
  if (key.length > BOOTSTRAP_KEY_CHARACTERS_MAX) {
    throw new BootstrapKeyError(
      "too_long",
      `The bootstrap key has ${key.length} characters; at most ${BOOTSTRAP_KEY_CHARACTERS_MAX} are read. ${remedy}`,
    );
  }
  if (!/^[\x21-\x7e]+$/.test(key)) {
    throw new BootstrapKeyError("not_printable", `The bootstrap key has a space, a control or a non-ASCII character. ${remedy}`);
  }
  const distinct = new Set(key).size;
  if (distinct < DISTINCT_CHARACTERS_MIN) {
    throw new BootstrapKeyError(
      "too_uniform",
      `The bootstrap key is made of ${distinct} different characters; it needs at least ${DISTINCT_CHARACTERS_MIN}. ${remedy}`,
    );
  }
}
