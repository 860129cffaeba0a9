/** For tests: a ledger of which some operations do as the test says. */
import type { Ledger } from "../domain/ports/ledger.js";

/** All operations are those of `inner` but for `own`. */
export function withLedger(inner: Ledger, own: Partial<Ledger>): Ledger {
  return {
    description: inner.description,
    blobs: inner.blobs,
    lanes: inner.lanes,
    append: (callId, expected, entry) => inner.append(callId, expected, entry),
    read: (callId, from) => inner.read(callId, from),
    tail: (from, signal) => inner.tail(from, signal),
    latest: () => inner.latest(),
    openCalls: () => inner.openCalls(),
    check: () => inner.check(),
    retire: (incarnation) => inner.retire(incarnation),
    places: (from, signal) => inner.places(from, signal),
    remove: (callId, versions) => inner.remove(callId, versions),
    close: () => inner.close(),
    ...own,
  };
}
