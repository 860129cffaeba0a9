/**
 * Arbitrary calls for property tests: entries of every kind, and walks through the machine that reach every state.
 *
 * A walk is generated as seeds that know nothing of the state; each becomes an entry only when its turn comes, most often of a
 * kind that the state has an edge for, about the newest grant. So sequences shrink well, and stale and foreign entries occur too.
 */
import * as fc from "fast-check";
import type { CallError, CallRequest, CallState, GrantHolder, StoredText } from "../domain/call/call-state.js";
import { EDGES, type Edge } from "../domain/call/edges.js";
import type { CallEntry, CallEntryKind, PlacedEntry, ReceiptEntryFacts } from "../domain/call/entries.js";
import { type CallEvent, transition } from "../domain/call/transition.js";
import { SAMPLE_START_MS, sampleHolder, sampleRequest } from "./sample-call.js";

/** Any text, with characters of every plane, lone surrogates and the names that objects trip over. */
export const anyText: fc.Arbitrary<string> = fc.oneof(
  fc.string({ maxLength: 12 }),
  fc.string({ unit: "binary", maxLength: 12 }),
  fc.string({ unit: "grapheme", maxLength: 12 }),
  fc.constantFrom("__proto__", "constructor", "", "\ud800", "a\udfffb", '","text":1', "\u0000\u2028\u2029"),
);

/** Any JSON text, as a runner or an agent may have spelled it. */
export const anyJson: fc.Arbitrary<string> = fc.oneof(
  fc.json({ maxDepth: 3, stringUnit: "grapheme" }),
  fc.constantFrom(
    "null",
    "-0",
    "1e400",
    "12345678901234567890",
    '{"__proto__":{"polluted":true},"constructor":1}',
    '{"2":1,"1":2,"a":3}',
    '{"text":{"f":2},"units":7,"blob":{}}',
    '"\\ud83d\\ude00 \\ud800 \\u0000"',
    ' { "spaced" : [ 1 , 2 ] } ',
    '"👩‍👩‍👧‍👦"',
  ),
);

/** Plain objects only: entries are JSON, which brings no prototype-less ones back. */
function record<T>(fields: { [F in keyof T]: fc.Arbitrary<T[F]> }): fc.Arbitrary<T> {
  return fc.record(fields, { noNullPrototype: true });
}

const anyBoolean = fc.boolean();
const anyTime = fc.integer({ min: SAMPLE_START_MS, max: SAMPLE_START_MS + 1_000_000 });
const anyTimeOrNull = fc.option(anyTime);

export const anyStoredText: fc.Arbitrary<StoredText> = fc.oneof(
  anyJson.map((json): StoredText => ({ kind: "inline", json, bytes: Buffer.byteLength(json) })),
  record({ kind: fc.constant("blob" as const), name: anyText, bytes: fc.nat() }),
);

export const anyCallError: fc.Arbitrary<CallError> = record({
  code: fc.constantFrom("handler_error", "call_cancelled", "call_timed_out", "result_invalid"),
  message: anyText,
  retryable: anyBoolean,
  retryAfterMs: fc.option(fc.nat({ max: 100_000 })),
  details: fc.array(record({ path: anyText, expected: anyText, actual: anyText }), { maxLength: 2 }),
});

export const anyHolder: fc.Arbitrary<GrantHolder> = record({
  runnerId: anyText,
  sessionEpoch: fc.nat(),
  handlerReadOnly: anyBoolean,
  handlerIdempotent: anyBoolean,
  handlerCancellable: anyBoolean,
}).map((overrides) => sampleHolder(overrides));

export const anyRequest: fc.Arbitrary<CallRequest> = record({
  agent: fc.option(anyText),
  subject: fc.option(anyText),
  tool: anyText,
  readOnly: anyBoolean,
  idempotent: anyBoolean,
  cancellable: anyBoolean,
  scopes: fc.array(anyText, { maxLength: 2 }),
  maxAttempts: fc.integer({ min: 1, max: 3 }),
}).map((overrides) => sampleRequest(overrides));

const anyReceipt: fc.Arbitrary<ReceiptEntryFacts> = record({
  grantId: anyText,
  attempt: fc.nat({ max: 10 }),
  fence: fc.nat(),
  runnerId: anyText,
  digest: fc.constantFrom("digest_1", "digest_2"),
  startedAtMs: anyTimeOrNull,
  outcome: fc.constantFrom("succeeded", "failed", "cancelled", "submitted"),
  value: fc.option(anyStoredText),
  error: fc.option(anyCallError),
});

const anyLive = record({ startedAtMs: anyTimeOrNull, startedSeq: fc.option(fc.nat({ max: 50 })), lastSeq: fc.nat({ max: 100 }) });

type Fields<K extends CallEntryKind> = Omit<Extract<CallEntry, { readonly kind: K }>, "kind" | "at" | "live">;

function entryOf<K extends CallEntryKind>(
  kind: K,
  fields: { [F in keyof Fields<K>]: fc.Arbitrary<Fields<K>[F]> },
): fc.Arbitrary<CallEntry> {
  // It has the fields of K; its type is lost where fields are mapped generically.
  const filled = record(fields as Record<string, fc.Arbitrary<unknown>>) as unknown as fc.Arbitrary<Fields<K>>;
  return fc
    .tuple(anyTime, fc.option(anyLive, { freq: 5 }), filled)
    .map(([at, live, rest]) => ({ kind, at, ...(live === null ? {} : { live }), ...rest }) as unknown as CallEntry);
}

const anyGrantFacts = record({ attempt: fc.integer({ min: 1, max: 10 }), holder: anyHolder });

/** Arbitrary entries, by kind. Grant ids in them are of no grant. */
export const ENTRY_ARBITRARIES: Readonly<Record<CallEntryKind, fc.Arbitrary<CallEntry>>> = {
  accepted: entryOf("accepted", {
    request: anyRequest,
    argumentsJson: anyJson,
    driver: anyText,
    deadlineAtMs: anyTimeOrNull,
    confirmationExpiresAtMs: anyTimeOrNull,
    grant: fc.option(anyGrantFacts),
  }),
  confirmed: entryOf("confirmed", { by: anyText, deadlineAtMs: anyTime }),
  denied: entryOf("denied", { error: anyCallError }),
  waiting: entryOf("waiting", { waitingFor: fc.constantFrom("runner", "handler", "capacity", "order") }),
  granted: entryOf("granted", { driver: anyText, grant: anyGrantFacts }),
  returned: entryOf("returned", {
    grantId: anyText,
    reason: fc.constantFrom("unavailable", "forbidden", "never_started", "unsent"),
    message: anyText,
    notBeforeMs: anyTimeOrNull,
  }),
  receipt: entryOf("receipt", {
    receipt: anyReceipt,
    fault: fc.option(anyCallError, { freq: 2 }),
    retryAtMs: anyTimeOrNull,
    submissionExpiresAtMs: anyTimeOrNull,
  }),
  updated: entryOf("updated", {
    updateId: anyText,
    digest: anyText,
    data: record({ text: anyText, data: fc.constantFrom(1, "a", null, [1]) }),
  }),
  lease_lost: entryOf("lease_lost", {
    grantId: anyText,
    cause: fc.constantFrom("lease", "runner_restarted"),
    message: anyText,
    retryAtMs: anyTimeOrNull,
  }),
  exhausted: entryOf("exhausted", { error: anyCallError }),
  timed_out: entryOf("timed_out", { error: anyCallError }),
  cancel_requested: entryOf("cancel_requested", { reason: anyText }),
  cancel_answered: entryOf("cancel_answered", { level: fc.constantFrom("delivered", "ignored") }),
  cancelled: entryOf("cancelled", { error: anyCallError, letRun: anyBoolean }),
  reconcile_granted: entryOf("reconcile_granted", {
    startedGrantId: anyText,
    holder: anyHolder,
    expiresAtMs: anyTime,
    message: anyText,
  }),
  reconcile_unanswered: entryOf("reconcile_unanswered", {
    grantId: anyText,
    reason: fc.constantFrom("unknown", "unavailable", "timed_out", "gone"),
    message: anyText,
    askAgainAtMs: anyTimeOrNull,
  }),
  reconciled: entryOf("reconciled", {
    outcome: fc.constantFrom("applied", "not_applied", "abandon"),
    by: anyText,
    note: fc.option(anyText),
    value: fc.option(anyStoredText),
    error: fc.option(anyCallError, { freq: 2 }),
  }),
  evidence: entryOf("evidence", { receipt: anyReceipt }),
  adopted: entryOf("adopted", { driver: anyText, from: anyText }),
};

/** Any entry of any kind. */
export const anyEntry: fc.Arbitrary<CallEntry> = fc.oneof(...Object.values(ENTRY_ARBITRARIES));

/** One entry of each kind; the state of the walk chooses among them. */
type EntryPool = Readonly<Record<CallEntryKind, CallEntry>>;

/** What becomes one entry of a walk. */
interface EntrySeed {
  readonly pool: number;
  /** Chooses an edge of the state. */
  readonly pick: number;
  /** Take any kind, also one that the state has no edge for. */
  readonly wild: boolean;
  /** Which grant it is about. */
  readonly about: "newest" | "older" | "unknown";
  /** News that was told live before it: progress events, after the start when it was not told yet. */
  readonly progress: number | null;
  /** How many versions of other calls lie between. */
  readonly gap: number;
}

/** A walk before it is walked. */
export interface WalkSeed {
  readonly pools: readonly EntryPool[];
  readonly seeds: readonly EntrySeed[];
}

const KINDS = Object.keys(ENTRY_ARBITRARIES) as CallEntryKind[];
const POOLS = 3;

const anySeed: fc.Arbitrary<EntrySeed> = record({
  pool: fc.nat({ max: POOLS - 1 }),
  pick: fc.nat({ max: 1_000 }),
  wild: fc.oneof({ arbitrary: fc.constant(false), weight: 4 }, { arbitrary: fc.constant(true), weight: 1 }),
  about: fc.oneof(
    { arbitrary: fc.constant("newest" as const), weight: 5 },
    { arbitrary: fc.constantFrom("older" as const, "unknown" as const), weight: 1 },
  ),
  progress: fc.option(fc.nat({ max: 3 })),
  gap: fc.nat({ max: 3 }),
});

/** A walk of up to 16 entries; {@link walk} walks it. */
export const anyWalk: fc.Arbitrary<WalkSeed> = record({
  // The record's type is the union's, kind by kind.
  pools: fc.array(record(ENTRY_ARBITRARIES) as fc.Arbitrary<EntryPool>, { minLength: POOLS, maxLength: POOLS }),
  seeds: fc.array(anySeed, { minLength: 1, maxLength: 16 }),
});

export interface WalkStep {
  readonly before: CallState;
  readonly entry: PlacedEntry;
  /** Undefined when the machine rejected the entry. */
  readonly edge: Edge | undefined;
  readonly after: CallState;
  readonly events: readonly CallEvent[];
  readonly effects: readonly string[];
}

/** Walks the machine from `requested`. Rejected entries are part of the answer and change nothing. */
export function walk({ pools, seeds }: WalkSeed): WalkStep[] {
  const steps: WalkStep[] = [];
  const grants: string[] = [];
  let state: CallState = { kind: "requested" };
  let version = 0;
  for (const [index, seed] of seeds.entries()) {
    version += 1 + seed.gap;
    const entry: PlacedEntry = { ...entryFrom(pools, seed, state, grants), entryId: `entry_${index + 1}`, version };
    const outcome = transition(state, entry);
    const moved = outcome.kind === "moved";
    const after: CallState = moved ? outcome.state : state;
    steps.push({
      before: state,
      entry,
      edge: moved ? outcome.edge : undefined,
      after,
      events: moved ? outcome.events : [],
      effects: moved ? outcome.effects.map(({ kind }) => kind) : [],
    });
    if (moved && (entry.kind === "granted" || (entry.kind === "accepted" && entry.grant !== null))) {
      grants.push(entry.entryId);
    }
    state = after;
  }
  return steps;
}

function entryFrom(pools: readonly EntryPool[], seed: EntrySeed, state: CallState, grants: readonly string[]): CallEntry {
  const edges = EDGES.filter(({ from }) => from === state.kind);
  const kind = seed.wild ? KINDS[seed.pick % KINDS.length] : edges[seed.pick % edges.length]?.on;
  const pool = pools[seed.pool];
  if (kind === undefined || pool === undefined) {
    throw new Error("a state without edges, or a seed without its pool");
  }
  const { live: _live, ...entry } = pool[kind];
  const grantId = { newest: grants.at(-1), older: grants.at(-2), unknown: undefined }[seed.about] ?? "entry_unknown";
  const news = liveNews(seed, state);
  const about = { ...entry, ...(news === undefined ? {} : { live: news }) } as CallEntry;
  switch (about.kind) {
    case "returned":
    case "lease_lost":
      return { ...about, grantId };
    case "reconcile_granted":
      return { ...about, startedGrantId: grantId };
    case "reconcile_unanswered":
      return { ...about, grantId: askOf(seed, state) };
    case "reconciled":
      // A person's word, or a handler's: of the one that is asked, or of another; after a cancel or without one.
      return {
        ...about,
        ...(seed.gap % 2 === 0 ? {} : { askId: askOf(seed, state) }),
        ...(seed.pool === 0 ? { cancelled: true } : {}),
      };
    case "receipt":
    case "evidence":
      return { ...about, receipt: { ...about.receipt, grantId } } as CallEntry;
    case "granted":
      // The driver counts attempts; the machine takes its word.
      return "record" in state ? { ...about, grant: { ...about.grant, attempt: state.record.attempts + 1 } } : about;
    case "accepted":
      return about.grant === null ? about : { ...about, grant: { ...about.grant, attempt: 1 } };
    default:
      return about;
  }
}

function askOf(seed: EntrySeed, state: CallState): string {
  return (seed.about === "newest" && state.kind === "needs_reconciliation" ? state.asked?.grantId : undefined) ?? "entry_unknown";
}

/** News as a driver tells it: numbered on from the log, the start once. */
function liveNews(seed: EntrySeed, state: CallState): CallEntry["live"] {
  if (state.kind !== "running" || seed.progress === null) {
    return undefined;
  }
  const { eventSeq, startedAtMs } = state.record;
  const tellsStart = startedAtMs === null;
  return {
    startedAtMs: tellsStart ? SAMPLE_START_MS : startedAtMs,
    startedSeq: tellsStart ? eventSeq + 1 : null,
    lastSeq: eventSeq + (tellsStart ? 1 : 0) + seed.progress,
  };
}

/** Asserts a synchronous property; a failure prints its seed, path and smallest counterexample. */
export function forAll<Ts extends [unknown, ...unknown[]]>(property: fc.IProperty<Ts>, numRuns: number): void {
  return fc.assert(property, { numRuns });
}
