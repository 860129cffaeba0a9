import { describe, expect, it } from "vitest";
import { encodeEntry } from "../domain/call/entry-codec.js";
import { createMemoryLedger, createMemoryLedgerStore } from "../ledger/memory/memory-ledger.js";
import { UnnamedValues } from "./unnamed-values.js";

const HOUR = 3_600_000;
const NEVER = new AbortController().signal;

function scene() {
  const store = createMemoryLedgerStore();
  const ledger = createMemoryLedger({ store });
  let nowMs = 0;
  let looks = 0;
  const values = new UnnamedValues({
    ledger,
    clock: { monotonic: () => nowMs },
    graceMs: HOUR,
    pace: async () => {
      looks += 1;
    },
  });
  return {
    ledger,
    values,
    pass: (ms: number) => {
      nowMs += ms;
    },
    sweep: () => values.sweep(NEVER),
    looks: () => looks,
    has: (name: string) => store.blobs.has(name),
    /** Stores an entry that names the value. */
    name: (name: string) => {
      const [callId = ""] = name.split("/");
      const data = `${encodeEntry({ kind: "waiting", at: 1, waitingFor: "runner" }).slice(0, -1)},"blob":${JSON.stringify({ name, bytes: 1 })}}`;
      return ledger.append(callId, store.entriesOfCall.get(callId)?.at(-1)?.version ?? 0, {
        entryId: `entry_${nowMs}`,
        data,
        mark: "none",
      });
    },
  };
}

describe("values that no call names (L7)", () => {
  it("go an hour after they were seen, and not before they were looked at once more", async () => {
    const { ledger, sweep, pass, has } = scene();
    await ledger.blobs.put("call_a/blob_1", "x");
    expect(await sweep()).toBe(0);
    pass(HOUR - 1);
    expect(await sweep()).toBe(0);
    pass(1);
    expect(await sweep()).toBe(0);
    expect(has("call_a/blob_1")).toBe(true);
    expect(await sweep()).toBe(1);
    expect(has("call_a/blob_1")).toBe(false);
    expect(await sweep()).toBe(0);
  });

  it("stay when an entry names them, whenever it comes", async () => {
    const { ledger, sweep, pass, has, name, values } = scene();
    const late = ["call_a/blob_1", "call_b/blob_1", "call_c/blob_1"] as const;
    await name(late[0]);
    for (const each of late) await ledger.blobs.put(each, "x");
    await sweep();
    expect(values.size).toBe(2);
    pass(HOUR);
    await name(late[1]);
    await sweep();
    // The ledger was away for the hour, and what was to be stored meanwhile comes now.
    await name(late[2]);
    pass(10 * HOUR);
    expect(await sweep()).toBe(0);
    expect(late.map(has)).toEqual([true, true, true]);
    expect(values.size).toBe(0);
  });

  it("stay for another hour when they are stored again", async () => {
    const { ledger, sweep, pass, has } = scene();
    await ledger.blobs.put("call_a/blob_1", "x");
    await sweep();
    pass(HOUR);
    await sweep();
    await ledger.blobs.put("call_a/blob_1", "x");
    expect(await sweep()).toBe(0);
    expect(has("call_a/blob_1")).toBe(true);
    pass(HOUR);
    await sweep();
    expect(await sweep()).toBe(1);
  });

  it("stay when they are stored again while they are being removed", async () => {
    const { ledger, sweep, pass, has } = scene();
    await ledger.blobs.put("call_a/blob_1", "x");
    await sweep();
    pass(HOUR);
    await sweep();
    // The look at what is new is over when this lands.
    const sweeping = sweep();
    await new Promise((resolve) => setImmediate(resolve));
    await ledger.blobs.put("call_a/blob_1", "x");
    await sweeping;
    expect(has("call_a/blob_1")).toBe(true);
  });

  it("are looked at once while they are named, however often it is swept", async () => {
    const { ledger, sweep, name, looks } = scene();
    for (let number = 0; number < 50; number += 1) {
      await ledger.blobs.put(`call_${number}/blob_1`, "x");
      await name(`call_${number}/blob_1`);
    }
    await sweep();
    expect(looks()).toBe(50);
    await sweep();
    await ledger.blobs.put("call_late/blob_1", "x");
    await sweep();
    expect(looks()).toBe(51);
  });

  it("are left where a sweep was ended", async () => {
    const { ledger, values, pass, has } = scene();
    await ledger.blobs.put("call_a/blob_1", "x");
    await values.sweep(NEVER);
    pass(HOUR);
    await values.sweep(NEVER);
    const aborted = new AbortController();
    aborted.abort();
    expect(await values.sweep(aborted.signal)).toBe(0);
    expect(has("call_a/blob_1")).toBe(true);
  });
});
