/** The rules for subjects and registry keys, the same on every bus: what one refuses, all refuse. */

const TOKENS = /^[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*$/;
const TOKENS_OR_WILDCARD = /^(?:[A-Za-z0-9_-]+\.)*(?:[A-Za-z0-9_-]+|\*|>)$/;

/** Longest subject or key; keeps a subject with its bus's prefix far below the server's line limit. */
const CHARACTERS_MAX = 1_024;

/** Throws a TypeError when `subject` cannot be published to: dot-separated tokens of `[A-Za-z0-9_-]`. */
export function checkSubject(subject: string): void {
  if (subject.length > CHARACTERS_MAX || !TOKENS.test(subject)) {
    throw new TypeError(`Subject ${JSON.stringify(subject.slice(0, 80))} is not dot-separated tokens of [A-Za-z0-9_-].`);
  }
}

/** Throws a TypeError when `subject` cannot be listened to; its last token may be `*` (one token) or `>` (one or more). */
export function checkSubscription(subject: string): void {
  if (subject.length > CHARACTERS_MAX || !TOKENS_OR_WILDCARD.test(subject)) {
    throw new TypeError(
      `Subject ${JSON.stringify(subject.slice(0, 80))} is not dot-separated tokens of [A-Za-z0-9_-], the last of which may be * or >.`,
    );
  }
}

/** Throws a TypeError when `key` cannot name a registry record: dot-separated tokens of `[A-Za-z0-9_-]`. */
export function checkKey(key: string): void {
  if (key.length > CHARACTERS_MAX || !TOKENS.test(key)) {
    throw new TypeError(`Key ${JSON.stringify(key.slice(0, 80))} is not dot-separated tokens of [A-Za-z0-9_-].`);
  }
}

/** Throws a TypeError when `name` cannot name a registry: `[a-z][a-z0-9_-]*`. */
export function checkRegistryName(name: string): void {
  if (!/^[a-z][a-z0-9_-]{0,63}$/.test(name))
    throw new TypeError(`Registry name ${JSON.stringify(name.slice(0, 80))} is not [a-z][a-z0-9_-]*.`);
}
