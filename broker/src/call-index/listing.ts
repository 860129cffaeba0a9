/** What a listing may ask for, and what is refused. */
import { BrokerError } from "../domain/broker-error.js";
import type { CallFilter } from "../domain/call-view.js";
import type { PageRequest } from "../domain/ports/catalog.js";
import type { FILTER_COLUMNS } from "./call-rows.js";

const PAGE_LIMIT_DEFAULT = 20;
const PAGE_LIMIT_MAX = 100;

/** How many calls a page may have. Throws {@link BrokerError} `body_invalid`. */
export function limitOf(page: PageRequest): number {
  const limit = page.limit ?? PAGE_LIMIT_DEFAULT;
  if (!Number.isInteger(limit) || limit < 1 || limit > PAGE_LIMIT_MAX) {
    const expected = `an integer from 1 to ${PAGE_LIMIT_MAX}`;
    throw new BrokerError("body_invalid", `limit must be ${expected}`, { details: [{ path: "/limit", expected, actual: String(limit) }] });
  }
  return limit;
}

/** The value of each column; null where any will do. */
export function filterValues(filter: CallFilter): Record<(typeof FILTER_COLUMNS)[number], string | null> {
  const { session, subject, agent, tool, toolset, binding, state } = filter;
  return {
    session: session ?? null,
    subject: subject ?? null,
    agent: agent ?? null,
    tool: tool ?? null,
    toolset: toolset ?? null,
    binding: binding ?? null,
    state: state ?? null,
  };
}

/** The answer while the index is not ready. */
export function away(cause?: unknown): BrokerError {
  return new BrokerError("index_away", "the index of calls is not ready: repeat the listing shortly", {
    retryAfterSeconds: 1,
    ...(cause === undefined ? {} : { cause }),
  });
}
