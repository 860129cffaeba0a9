/** Small builders of requests, holders and entries for tests. Everything is overridable; nothing is random. */
import type { CallRequest, GrantHolder, StoredText } from "../domain/call/call-state.js";
import type { CallEntry, PlacedEntry, ReceiptEntryFacts } from "../domain/call/entries.js";

type EntryOf<K extends CallEntry["kind"]> = Extract<CallEntry, { readonly kind: K }>;

/** The moment at which sample calls are accepted, in Unix milliseconds. */
export const SAMPLE_START_MS = Date.UTC(2026, 0, 1);

/** A request of a repeatable tool with three attempts and 300 s. */
export function sampleRequest(overrides: Partial<CallRequest> = {}): CallRequest {
  return {
    callId: "call_sample",
    application: "default",
    agent: "helper",
    keyId: "key_sample",
    subject: null,
    session: null,
    toolset: "shop",
    toolsetVersion: 3,
    tool: "refund",
    version: "1",
    binding: "shop",
    bindingKind: "backend",
    readOnly: false,
    idempotent: true,
    cancellable: true,
    submission: false,
    modelResultBytesMax: 16_384,
    scopes: [],
    requestHash: "hash",
    timeoutMs: 300_000,
    maxAttempts: 3,
    priority: "interactive",
    traceparent: null,
    createdAtMs: SAMPLE_START_MS,
    ...overrides,
  };
}

/** A runner whose handler is idempotent and cancellable. */
export function sampleHolder(overrides: Partial<GrantHolder> = {}): GrantHolder {
  return {
    runnerId: "runner_a",
    sessionEpoch: 7,
    journalId: "journal_a",
    brokerId: "broker_a",
    handlerReadOnly: false,
    handlerIdempotent: true,
    handlerCancellable: true,
    ...overrides,
  };
}

/** A JSON value as stored text. */
export function inlineText(value: unknown): Extract<StoredText, { readonly kind: "inline" }> {
  const json = JSON.stringify(value);
  return { kind: "inline", json, bytes: Buffer.byteLength(json) };
}

/** The acceptance of a call that waits for a runner. */
export function acceptedEntry(request: CallRequest, overrides: Partial<EntryOf<"accepted">> = {}): EntryOf<"accepted"> {
  return {
    kind: "accepted",
    at: request.createdAtMs,
    request,
    argumentsJson: '{"order":"A1"}',
    driver: "broker_a",
    deadlineAtMs: request.createdAtMs + request.timeoutMs,
    confirmationExpiresAtMs: null,
    grant: null,
    ...overrides,
  };
}

/** What a runner says of the grant `grantId`: by default that it succeeded. */
export function receiptFacts(grantId: string, overrides: Partial<ReceiptEntryFacts> = {}): ReceiptEntryFacts {
  return {
    grantId,
    attempt: 1,
    fence: 1,
    runnerId: "runner_a",
    digest: "digest_1",
    startedAtMs: null,
    outcome: "succeeded",
    value: inlineText({ refunded: true }),
    error: null,
    ...overrides,
  };
}

/** The entry of a receipt that settles, unless the overrides make it another. */
export function receiptEntry(
  receipt: ReceiptEntryFacts,
  overrides: Partial<Omit<EntryOf<"receipt">, "kind" | "receipt">> = {},
): EntryOf<"receipt"> {
  return { kind: "receipt", at: SAMPLE_START_MS + 1_000, receipt, fault: null, retryAtMs: null, submissionExpiresAtMs: null, ...overrides };
}

/** Gives entries their places: versions from 1, and the ids `entry_1`, `entry_2`, …, so the grant of the second entry is `entry_2`. */
export function placed(entries: readonly CallEntry[]): PlacedEntry[] {
  return entries.map((entry, index) => ({ ...entry, entryId: `entry_${index + 1}`, version: index + 1 }));
}
