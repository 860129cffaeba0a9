/**
 * What keys look like: `tra_<id>_<secret>` for agents, `trr_<id>_<secret>` for runners. The id is public and finds the key's
 * record; the secret is 32 random bytes. Only the SHA-256 of the whole credential is ever kept: with 256 random bits there is
 * nothing for a slow hash to protect.
 */
import { createHash, randomBytes, timingSafeEqual } from "node:crypto";

export type KeyKind = "agent" | "runner";

const LETTERS: Readonly<Record<KeyKind, string>> = { agent: "a", runner: "r" };
const CREDENTIAL = /^tr([ar])_([a-z0-9]{8,64})_[A-Za-z0-9_-]{43}$/;
const KEY_ID = /^key_[a-z0-9]{8,64}$/;

/** Longest credential that is looked at; longer ones are wrong without being hashed. */
export const CREDENTIAL_CHARACTERS_MAX = 512;

/** A new credential for the key `id` (`key_…`). */
export function makeCredential(kind: KeyKind, id: string): string {
  if (!KEY_ID.test(id)) throw new TypeError(`${JSON.stringify(id)} is not a key id: key_ and 8 to 64 characters of [a-z0-9].`);
  return `tr${LETTERS[kind]}_${id.slice("key_".length)}_${randomBytes(32).toString("base64url")}`;
}

/** The key id that a credential names; undefined when it does not have the form of one. */
export function parseCredential(credential: string): { readonly kind: KeyKind; readonly id: string } | undefined {
  const match = CREDENTIAL.exec(credential);
  return match === null ? undefined : { kind: match[1] === "a" ? "agent" : "runner", id: `key_${match[2]}` };
}

/** Whether `id` can be a key's id: what is not cannot be in the store either. */
export function isKeyId(id: string): boolean {
  return KEY_ID.test(id);
}

/** SHA-256 of a credential. */
export function hashCredential(credential: string): Buffer {
  return createHash("sha256").update(credential).digest();
}

/** Constant-time; false when the lengths differ. */
export function sameHash(left: Buffer, right: Buffer): boolean {
  return left.length === right.length && timingSafeEqual(left, right);
}
