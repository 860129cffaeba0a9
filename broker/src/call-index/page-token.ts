/**
 * Page tokens of call listings: opaque to callers, bound to the application and the filters they were made for.
 * A token holds a place in the ledger's order, so it stays good when the index is rebuilt or another broker answers.
 */
import { createHash } from "node:crypto";
import { BrokerError } from "../domain/broker-error.js";
import type { Version } from "../domain/ports/ledger.js";

const FORMAT = 1;

/** A short fingerprint of what is listed. `filters` are the values in a fixed order, null where there is none. */
export function listingFingerprint(application: string, filters: readonly (string | null)[]): string {
  return createHash("sha256")
    .update(JSON.stringify([application, ...filters]))
    .digest("base64url")
    .slice(0, 16);
}

/** The token for the page of calls that were accepted before version `before`. */
export function encodePageToken(before: Version, fingerprint: string): string {
  return Buffer.from(JSON.stringify([FORMAT, before, fingerprint])).toString("base64url");
}

/** The place that `token` names. Throws {@link BrokerError} `page_invalid` when it is no token, or one of another listing. */
export function decodePageToken(token: string, fingerprint: string): Version {
  const parts = parse(token);
  if (Array.isArray(parts) && parts.length === 3) {
    const [format, before, madeFor]: readonly unknown[] = parts;
    if (format === FORMAT && madeFor === fingerprint && typeof before === "number" && Number.isSafeInteger(before) && before > 0) {
      return before;
    }
  }
  throw new BrokerError("page_invalid", "page is no token of this listing: list again from the first page with the same filters", {
    details: [{ path: "/page", expected: "a next_page of the same filters", actual: "another text" }],
  });
}

function parse(token: string): unknown {
  const bytes = Buffer.from(token, "base64url");
  if (bytes.toString("base64url") !== token) {
    // Decoding passes over what is no base64; a token has one spelling only.
    return undefined;
  }
  try {
    return JSON.parse(bytes.toString("utf8"));
  } catch {
    return undefined;
  }
}
