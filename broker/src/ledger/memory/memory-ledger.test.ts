import { describe, expect, it } from "vitest";
import { describeLedger } from "../testing/describe-ledger.js";
import { entry, freshId } from "../testing/ledger-harness.js";
import { createMemoryLedger, createMemoryLedgerStore } from "./memory-ledger.js";

describeLedger("memory", async () => {
  const store = createMemoryLedgerStore();
  return {
    shared: true,
    open: async () => createMemoryLedger({ store }),
    corruptBlob: async (name) => {
      const blob = store.blobs.get(name);
      if (blob === undefined) throw new Error(`no blob ${name} to corrupt`);
      blob.text = `${blob.text}!`;
    },
    dispose: async () => undefined,
  };
});

describe("the memory ledger", () => {
  it("lets nothing take effect in the turn of the caller, and answers in a later turn than that of the effect", async () => {
    const turns: (() => void)[] = [];
    const store = createMemoryLedgerStore();
    const ledger = createMemoryLedger({ store, turn: () => new Promise((resolve) => turns.push(resolve)) });
    let answered = false;
    const appended = ledger.append(freshId("call"), 0, entry("x", "opens")).then(() => {
      answered = true;
    });
    await Promise.resolve();
    expect(store.entries).toHaveLength(0);
    turns.shift()?.();
    await new Promise((resolve) => setImmediate(resolve));
    expect([store.entries.length, answered]).toEqual([1, false]);
    turns.shift()?.();
    await appended;
  });

  it("starts empty when no store is given", async () => {
    const [one, other] = [createMemoryLedger(), createMemoryLedger()];
    const callId = freshId("call");
    await one.append(callId, 0, entry("x", "opens"));
    expect(await other.append(callId, 0, entry("y", "opens"))).toEqual({ kind: "appended", version: 1 });
  });
});
