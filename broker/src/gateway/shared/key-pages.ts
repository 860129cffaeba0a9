/** Pages of lists that are small enough to be held whole: keys. Newest first. */

import { BrokerError } from "../../domain/broker-error.js";
import type { KeyView } from "../../domain/ports/access.js";
import type { Page, PageRequest } from "../../domain/ports/catalog.js";

const LIMIT_DEFAULT = 20;

/**
 * The asked-for page of `keys`. `list` names the list (`keys`, `bindings/shop/keys`): a page token of another one is refused.
 * Throws `BrokerError` `page_invalid`.
 */
export function pageOfKeys(keys: readonly KeyView[], list: string, request: PageRequest): Page<KeyView> {
  const limit = request.limit ?? LIMIT_DEFAULT;
  const after = request.page === undefined ? undefined : positionIn(list, request.page);
  const sorted = keys.map((key) => ({ key, position: `${key.created_at} ${key.id}` })).sort((a, b) => compare(b.position, a.position));
  const rest = after === undefined ? sorted : sorted.filter(({ position }) => compare(position, after) < 0);
  const last = rest[limit - 1];
  return {
    data: rest.slice(0, limit).map(({ key }) => key),
    next_page: last !== undefined && rest.length > limit ? Buffer.from(JSON.stringify([list, last.position])).toString("base64url") : null,
  };
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function positionIn(list: string, token: string): string {
  try {
    const parsed: unknown = JSON.parse(Buffer.from(token, "base64url").toString("utf8"));
    if (Array.isArray(parsed) && parsed.length === 2 && parsed[0] === list && typeof parsed[1] === "string") return parsed[1];
  } catch {
    // Not one of ours: said below.
  }
  throw new BrokerError("page_invalid", "The page token is not one of this list: list again from the first page.");
}
