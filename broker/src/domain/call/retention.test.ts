import { describe, expect, it } from "vitest";
import { acceptedEntry, sampleRequest } from "../../testing/sample-call.js";
import type { StoredEntry } from "../ports/ledger.js";
import type { CallEntry, ReceiptEntryFacts } from "./entries.js";
import { encodeEntry } from "./entry-codec.js";
import { isExpired, judgeCall, namesBlob, ownerOf } from "./retention.js";

const SETTLED_AT = 5_000;
const ERROR = { code: "call_cancelled", message: "", retryable: false, retryAfterMs: null, details: [] };

const accepted = acceptedEntry(sampleRequest({ callId: "call_a" }));
const cancelled: CallEntry = { kind: "cancelled", at: SETTLED_AT, error: ERROR, letRun: false, application: "default" };
const receipt: ReceiptEntryFacts = {
  grantId: "entry_9",
  attempt: 1,
  fence: 1,
  runnerId: "runner_a",
  digest: "d".repeat(64),
  startedAtMs: null,
  outcome: "succeeded",
  value: { kind: "blob", name: "call_a/blob_1", bytes: 300_000 },
  error: null,
};
const evidence: CallEntry = { kind: "evidence", at: SETTLED_AT + 1, receipt, application: "default" };

/** Entries as a ledger gives them, from version 10 on. */
function stored(...entries: readonly (CallEntry | string)[]): StoredEntry[] {
  return entries.map((entry, index) => ({
    callId: "call_a",
    version: 10 + index,
    previous: index === 0 ? 0 : 9 + index,
    entryId: `entry_${index}`,
    data: typeof entry === "string" ? entry : encodeEntry(entry),
  }));
}

describe("what retention takes (X12, L6)", () => {
  it("is a call that was settled before the given time: its values, then its entries from the first on", () => {
    const call = stored(accepted, cancelled, evidence);
    expect(judgeCall(call, SETTLED_AT + 1)).toEqual({
      kind: "leaves",
      settledAtMs: SETTLED_AT,
      blobs: ["call_a/blob_1"],
      versions: [10, 11, 12],
    });
    expect(judgeCall(call, SETTLED_AT)).toEqual({ kind: "stays", acceptedAtMs: accepted.at });
  });

  it("is never an open call, however old", () => {
    expect(judgeCall(stored(accepted), Number.MAX_SAFE_INTEGER)).toEqual({ kind: "stays", acceptedAtMs: accepted.at });
  });

  it("is never a call with an entry that this broker cannot read", () => {
    for (const strange of ["{", JSON.stringify({ f: 99, kind: "receipt" }), "null"]) {
      expect(judgeCall(stored(accepted, cancelled, strange), Number.MAX_SAFE_INTEGER)).toEqual({ kind: "unreadable" });
    }
  });

  it("is what is left of a call whose removal began, at once and readable or not", () => {
    const left = stored(accepted, cancelled, evidence, "{").slice(1);
    expect(isExpired(left)).toBe(true);
    expect(judgeCall(left, Number.NEGATIVE_INFINITY)).toEqual({
      kind: "leaves",
      settledAtMs: null,
      blobs: ["call_a/blob_1"],
      versions: [11, 12, 13],
    });
  });

  it("is nothing where nothing is stored", () => {
    expect(judgeCall([], Number.MAX_SAFE_INTEGER)).toEqual({ kind: "absent" });
    expect(isExpired([])).toBe(false);
  });
});

describe("what is left of an expired call", () => {
  it("says whose it was, unless an older broker wrote it", () => {
    const { application: _, ...old } = cancelled;
    expect(ownerOf(stored(accepted, cancelled).slice(1))).toBe("default");
    expect(ownerOf(stored(accepted, "{", evidence).slice(1))).toBe("default");
    expect(ownerOf(stored(accepted, old as CallEntry).slice(1))).toBeUndefined();
  });
});

describe("the name of a value (L7)", () => {
  it("is found in any entry, of whatever kind; an entry that cannot be read may name it", () => {
    expect(namesBlob(stored(accepted, evidence), "call_a/blob_1")).toBe(true);
    expect(namesBlob(stored(accepted, evidence), "call_a/blob_2")).toBe(false);
    expect(
      namesBlob(stored(JSON.stringify({ f: 1, kind: "of a later part", blob: { name: "call_a/blob_2", bytes: 1 } })), "call_a/blob_2"),
    ).toBe(true);
    expect(namesBlob(stored(accepted, "{"), "call_a/blob_2")).toBe(true);
    expect(namesBlob([], "call_a/blob_1")).toBe(false);
  });
});
