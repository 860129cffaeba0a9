/** One digest of a result for agents, handlers and the ledger, whatever JSON text it travelled in. */
import { createHash } from "node:crypto";

/** SHA-256 of the compact JSON of what `json` holds. */
export function valueDigest(json: string): string {
  return digestOf(JSON.parse(json));
}

/** SHA-256 of the compact JSON of `value`. */
export function digestOf(value: unknown): string {
  return createHash("sha256").update(JSON.stringify(value)).digest("hex").slice(0, 16);
}
