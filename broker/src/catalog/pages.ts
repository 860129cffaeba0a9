/**
 * Pages of listings. A token names the last item that was shown and what was listed, so that it keeps its place while
 * others are added, and is refused with other filters. It grants nothing: who forges one sees what the listing shows anyway.
 */
import { BrokerError } from "../domain/broker-error.js";
import type { Page, PageRequest } from "../domain/ports/catalog.js";

export const PAGE_LIMIT_DEFAULT = 20;
export const PAGE_LIMIT_MAX = 100;
const TOKEN_CHARACTERS_MAX = 1_024;

export interface PageSource<T> {
  /** Names the listing and its filters; part of the token. */
  readonly listing: string;
  /** In the order of the listing. */
  readonly items: readonly T[];
  /** The place of an item in the order: rises along the listing, unique. */
  place(item: T): string;
  /** Whether place `left` comes before place `right`. */
  before(left: string, right: string): boolean;
}

/** Cuts the page out. Throws `page_invalid` for a token that is not of this listing, `body_invalid` for a limit outside 1 to 100. */
export function cutPage<T>(source: PageSource<T>, request: PageRequest): Page<T> {
  const limit = request.limit ?? PAGE_LIMIT_DEFAULT;
  if (!Number.isInteger(limit) || limit < 1 || limit > PAGE_LIMIT_MAX) {
    throw new BrokerError("body_invalid", `limit must be an integer from 1 to ${PAGE_LIMIT_MAX}.`, {
      details: [{ path: "/limit", expected: `an integer from 1 to ${PAGE_LIMIT_MAX}`, actual: `number ${limit}` }],
    });
  }
  const after = request.page === undefined ? undefined : decodeToken(request.page, source.listing);
  const rest = after === undefined ? source.items : source.items.filter((item) => source.before(after, source.place(item)));
  const data = rest.slice(0, limit);
  const last = data.at(-1);
  return { data, next_page: rest.length > limit && last !== undefined ? encodeToken(source.listing, source.place(last)) : null };
}

/** `newest first` for items made at a time; ties are broken by id. */
export function newestFirst<T>(items: readonly T[], place: (item: T) => string): T[] {
  return [...items].sort((left, right) => (place(left) < place(right) ? 1 : place(left) > place(right) ? -1 : 0));
}

function encodeToken(listing: string, place: string): string {
  return Buffer.from(JSON.stringify([1, listing, place])).toString("base64url");
}

function decodeToken(token: string, listing: string): string {
  const parsed =
    token.length <= TOKEN_CHARACTERS_MAX && /^[A-Za-z0-9_-]+$/.test(token) ? parse(Buffer.from(token, "base64url").toString()) : undefined;
  if (Array.isArray(parsed) && parsed.length === 3 && parsed[0] === 1 && parsed[1] === listing && typeof parsed[2] === "string")
    return parsed[2];
  throw new BrokerError("page_invalid", "The page token is not one of this listing. List again from the first page with the same filters.");
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
