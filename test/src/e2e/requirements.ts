/**
 * What this release promises, by the ids of the feature list and of the correctness rules, and which tests show it.
 *
 * `matrix`: scenarios of `scenarios/` cite the id and run over every transport and ledger. A file: tests there cite the id
 * in their names. `requirements.test.ts` fails when an id has no test, or a test cites an id that is not here.
 */
export interface Requirement {
  readonly id: string;
  readonly what: string;
  readonly shownBy: "matrix" | readonly string[];
}

const matrix = (id: string, what: string): Requirement => ({ id, what, shownBy: "matrix" });
const files = (id: string, what: string, ...shownBy: string[]): Requirement => ({ id, what, shownBy });

export const REQUIREMENTS: readonly Requirement[] = [
  matrix("X1", "Arguments are checked before acceptance, results before settlement; all faults are named with their paths."),
  matrix("X2", "The same key and request give the same call, under concurrency; another request a conflict."),
  matrix("X3", "Routing needs binding, tool and exact handler version; a waiting call says what it waits for, and times out."),
  matrix("X4", "A call for a subject goes only to runners of that subject, the visible one first; a backend serves all."),
  matrix("X5", "A submission answers the turn with its handle; updates and the final receipt come later, from the runner or by its key."),
  matrix("X6", "Progress reaches the agent in order, with its number."),
  matrix("X7", "A retryable failure of a repeatable tool leads to another attempt; a business failure does not."),
  matrix("X8", "Limits of concurrency and queue, with a typed refusal; a known key gets its call."),
  matrix("X10", "Calls with the same ordering key run one at a time, in order."),
  matrix("X11", "A batch is up to 64 calls of their own, answered together and in order."),
  matrix("C1", "Bindings are registered apart from being connected."),
  matrix("C2", "Tool names and their number are bounded."),
  matrix("C3", "A tool's fields have the documented defaults and bounds."),
  matrix("C4", "Each save makes a new immutable version; the same content makes none."),
  matrix("C5", "A save from an old version is refused and overwrites nothing."),
  matrix("C9", "Schemas are checked at save time, each fault with its path; references are local."),
  matrix("R1", "The Node SDK has one API over gRPC and WebSocket, and resumes grants after a reconnect."),
  matrix("R3", "A runner redials; a superseded one is refused and does not."),
  matrix("R6", "A faulty tool is refused by createRunner, which names it."),
  matrix("R7", "A handler that throws, or returns what JSON cannot hold, fails the call with a typed error."),
  matrix("R9", "Size limits are typed errors that name the tool, the bytes and the limit."),
  matrix("R11", "authorize runs before the handler; forbid settles as denied."),
  matrix("K1", "A cancel before the grant settles at once; after it, it reaches the handler's signal."),
  matrix("K2", "kill waits for the handler, skip and killnowait settle at once; what cannot be cancelled says so."),
  matrix("I1", "An acknowledged call is not lost."),
  files("I2", "One live grant at most; fences rise with every grant.", "chaos"),
  matrix("I3", "What is not safe to repeat starts once."),
  matrix("I4", "A receipt settles once, and its repeat is acknowledged."),
  files("I5", "A stale fence settles nothing.", "chaos"),
  matrix("I6", "The turn gets one answer: settled, submitted or needs_reconciliation."),
  matrix("I7", "A finished result survives the loss of its session."),
  matrix("I8", "No runner gets a call of another subject or binding."),
  matrix("I10", "Payloads never reach logs."),
  matrix("L7", "Values over 256 KiB are stored as blobs and read in pages."),
  matrix("G5", "Every receipt is answered with a disposition; one after settlement is evidence."),
  matrix("G6", "The turn is answered by needs_reconciliation when the outcome is unknown."),
  files("G1", "Never started is said by the journal that took the grant, and never inferred.", "reliability"),
  files("G3", "A lost lease leads to no second start; the outcome is unknown.", "reliability"),
  files("G4", "A reconcile handler is asked what became of a start whose process is gone.", "reliability"),
  matrix("B5", "An idempotency key is looked up before any refusal."),
  files("K3", "The levels of a cancel are told with their times.", "reliability"),
  files("L1", "Racing appends have one winner; replicas need 2.10.27.", "ledger"),
  files("L2", "Unknown outcomes of an append are repeated until known.", "ledger"),
  files("L3", "Versions are ledger-wide, rising and never reused.", "ledger"),
  files("L4", "The index of open calls never misses an open one.", "ledger"),
  files("L5", "Reads inform, appends decide; streams are configured for it.", "ledger", "catalog"),
  files("L6", "Retention removes call by call; what is half removed is expired, and never run.", "ledger", "retention"),
  files("X12", "Settled calls are kept for a configured time, then removed with results and keys.", "retention"),
  files("L8", "SQLite: one process, paged reads, group commit.", "ledger"),
  files("B1", "A dead broker's calls are taken over within 10 s.", "brokers"),
  files("B3", "Wake-ups are not lost for good across brokers.", "brokers"),
  files("I9", "After a process died its open calls are driven within 10 s.", "brokers"),
  files("D5", "Metrics for Prometheus behind diagnostics:read, each fact counted once over all brokers.", "metrics"),
  files("R5", "Each tab has a runner id of its own; the one in front is called, and another takes over when it closes.", "browser"),
  files(
    "R10",
    "A conformance suite plays the protocol with any runner or broker over stdin and stdout, and finds planted faults.",
    "conformance",
  ),
  files("K4", "Child processes die with their call, those of a killed runner when it starts again.", "reliability"),
  files("R2", "A journal, in a file or in IndexedDB, protects a finished result across a kill.", "brokers", "browser"),
  files("R4", "A page that is left hands back what has not begun and flushes its receipts; nothing relies on it.", "browser"),
  files(
    "R8",
    "After a gap, a freeze or a jump of the clock nothing starts outside its lease, and no result is lost.",
    "browser",
    "reliability",
  ),
  files("B2", "Pages work across reloads, hidden and frozen tabs, offline and sleep.", "browser", "reliability"),
];
