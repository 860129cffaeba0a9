import { afterEach, describe, expect, it } from "vitest";
import type { CallEntry } from "../domain/call/entries.js";
import { encodeEntry } from "../domain/call/entry-codec.js";
import type { CallFilter } from "../domain/call-view.js";
import type { Ledger, Version } from "../domain/ports/ledger.js";
import { acceptedEntry, receiptFacts, SAMPLE_START_MS, sampleHolder, sampleRequest } from "../testing/sample-call.js";
import { createCallIndex } from "./call-index.js";
import { CANCEL, indexFile, listed, refusalOf, Scene, tidy } from "./testing/index-scene.js";

afterEach(tidy);

describe("listing", () => {
  it("shows a call that was created just before, when its version is given", async () => {
    const scene = new Scene();
    const index = await scene.start();
    for (let number = 0; number < 30; number += 1) {
      const version = await scene.accept(`call_${number}`);
      const { data } = await index.list("default", {}, { limit: 1 }, { atLeast: version });
      expect(data).toEqual([{ callId: `call_${number}`, opened: version }]);
      expect(index.caughtUp(version)).toBe(true);
      expect(index.caughtUp(version + 1)).toBe(false);
    }
  });

  it("is newest first, 20 a page by default, and ends with a null next_page", async () => {
    const scene = new Scene();
    const index = await scene.start();
    const ids: string[] = [];
    for (let number = 0; number < 45; number += 1) {
      await scene.accept(`call_${number}`);
      ids.unshift(`call_${number}`);
    }
    const first = await index.list("default", {}, {}, { atLeast: 45 });
    expect(first.data.map(({ callId }) => callId)).toEqual(ids.slice(0, 20));
    const second = await index.list("default", {}, { page: first.next_page ?? "" });
    const third = await index.list("default", {}, { page: second.next_page ?? "" });
    expect([...second.data, ...third.data].map(({ callId }) => callId)).toEqual(ids.slice(20));
    expect(third.next_page).toBeNull();
  });

  it("keeps its place between pages while newer calls come in", async () => {
    const scene = new Scene();
    const index = await scene.start();
    for (const callId of ["call_a", "call_b", "call_c"]) {
      await scene.accept(callId);
    }
    const first = await index.list("default", {}, { limit: 2 }, { atLeast: 3 });
    await scene.accept("call_d");
    const second = await index.list("default", {}, { limit: 2, page: first.next_page ?? "" }, { atLeast: 4 });
    expect([...first.data, ...second.data].map(({ callId }) => callId)).toEqual(["call_c", "call_b", "call_a"]);
    expect(second.next_page).toBeNull();
  });

  it("ends exactly with a full last page", async () => {
    const scene = new Scene();
    const index = await scene.start();
    await scene.accept("call_a");
    const version = await scene.accept("call_b");
    expect((await index.list("default", {}, { limit: 2 }, { atLeast: version })).next_page).toBeNull();
    expect((await index.list("default", {}, { limit: 1 })).next_page).not.toBeNull();
  });

  it("refuses a page token of other filters, of another application, or made up, as page_invalid", async () => {
    const scene = new Scene();
    const index = await scene.start();
    for (const callId of ["call_a", "call_b", "call_c"]) {
      await scene.accept(callId, { subject: "user_1" });
    }
    const { next_page: token } = await index.list("default", { subject: "user_1" }, { limit: 1 }, { atLeast: 3 });
    if (token === null) {
      throw new Error("the first page has no token");
    }
    const changed = Buffer.from(JSON.stringify([1, -5, "x"])).toString("base64url");
    const attempts: [string, CallFilter, string][] = [
      ["default", {}, token],
      ["default", { subject: "user_2" }, token],
      ["default", { subject: "user_1", state: "queued" }, token],
      ["other", { subject: "user_1" }, token],
      ...["", " ", "null", "abc", changed, `${token}x`, "\u0000", "💥".repeat(1_000)].map((page): [string, CallFilter, string] => [
        "default",
        { subject: "user_1" },
        page,
      ]),
    ];
    for (const [application, filter, page] of attempts) {
      expect(await refusalOf(index.list(application, filter, { page })), page).toBe("page_invalid");
    }
    expect((await index.list("default", { subject: "user_1" }, { limit: 1, page: token })).data).toEqual([{ callId: "call_b", opened: 2 }]);
  });

  it("takes a limit from 1 to 100 and refuses what is beside it", async () => {
    const scene = new Scene();
    const index = await scene.start();
    const version = await scene.accept("call_a");
    for (const limit of [1, 100]) {
      expect((await index.list("default", {}, { limit }, { atLeast: version })).data).toHaveLength(1);
    }
    for (const limit of [0, 101, -1, 1.5, Number.NaN]) {
      expect(await refusalOf(index.list("default", {}, { limit }))).toBe("body_invalid");
    }
  });

  it("shows an application its own calls only (A2, I8)", async () => {
    const scene = new Scene();
    const index = await scene.start();
    await scene.accept("call_ours", { application: "ours" });
    const version = await scene.accept("call_theirs", { application: "theirs" });
    expect(await listed(index, {}, version, "ours")).toEqual(["call_ours"]);
    expect(await listed(index, {}, version, "nobody")).toEqual([]);
  });

  it("finds by every field, alone and together, also values that look like SQL", async () => {
    const scene = new Scene();
    const index = await scene.start();
    const hostile = `'; DROP TABLE calls; --"`;
    await scene.accept("call_plain");
    await scene.accept("call_tool", { tool: "lookup" });
    await scene.accept("call_toolset", { toolset: "desk" });
    await scene.accept("call_binding", { binding: "desk" });
    await scene.accept("call_agent", { agent: "other" });
    await scene.accept("call_subject", { subject: hostile });
    const version = await scene.accept("call_session", { session: "chat", subject: hostile, tool: "lookup" });
    await scene.add("call_tool", CANCEL);
    const found = (filter: CallFilter): Promise<string[]> => listed(index, filter, version + 1);
    expect(await found({ tool: "lookup" })).toEqual(["call_session", "call_tool"]);
    expect(await found({ toolset: "desk" })).toEqual(["call_toolset"]);
    expect(await found({ binding: "desk" })).toEqual(["call_binding"]);
    expect(await found({ agent: "other" })).toEqual(["call_agent"]);
    expect(await found({ subject: hostile })).toEqual(["call_session", "call_subject"]);
    expect(await found({ session: "chat" })).toEqual(["call_session"]);
    expect(await found({ state: "cancelled" })).toEqual(["call_tool"]);
    expect(await found({ state: "queued", tool: "lookup" })).toEqual(["call_session"]);
    expect(
      await found({
        state: "queued",
        tool: "lookup",
        subject: hostile,
        session: "chat",
        toolset: "shop",
        binding: "shop",
        agent: "helper",
      }),
    ).toEqual(["call_session"]);
    expect(await found({ subject: "" })).toEqual([]);
    expect(await found({})).toHaveLength(7);
  });

  it("waits within bounds for a version that does not come, then answers with what there is", async () => {
    const scene = new Scene();
    const index = await scene.start({ catchUpWaitMs: 40 });
    const version = await scene.accept("call_a");
    await listed(index, {}, version);
    const begun = performance.now();
    expect(await listed(index, {}, version + 1)).toEqual(["call_a"]);
    expect(performance.now() - begun).toBeLessThan(1_000);
  });

  it("is index_away before the start, after the stop, and while the ledger was never reached", async () => {
    const scene = new Scene();
    const index = createCallIndex({ ledger: scene.ledger, file: ":memory:", log: scene.log });
    expect(await refusalOf(index.list("default", {}, {}))).toBe("index_away");
    await index.start();
    await index.start();
    expect(await listed(index)).toEqual([]);
    await index.stop();
    await index.stop();
    expect(await refusalOf(index.list("default", {}, {}))).toBe("index_away");
    await expect(index.start()).rejects.toThrow(/make a new one/);

    const file = indexFile();
    await scene.accept("call_a");
    const first = await scene.start({ file });
    await listed(first, {}, 1);
    await first.stop();
    const hanging = {
      ...scene.ledger,
      tail: scene.ledger.tail,
      latest: () => new Promise<never>(() => {}),
      read: () => ({ [Symbol.asyncIterator]: () => ({ next: () => new Promise<never>(() => {}) }) }),
    };
    const unreached = await scene.start({ file, ledger: hanging, catchUpWaitMs: 30 });
    expect(await refusalOf(unreached.list("default", {}, {}))).toBe("index_away");
    expect(unreached.caughtUp(0)).toBe(false);
  });
});

describe("following the ledger", () => {
  it("shows the state that the machine gives a call after each of its entries", async () => {
    const scene = new Scene();
    const index = await scene.start();
    await scene.accept("call_a");
    const steps: [CallEntry, NonNullable<CallFilter["state"]>][] = [
      [
        {
          kind: "granted",
          at: SAMPLE_START_MS,
          driver: "broker_a",
          grant: { attempt: 1, holder: sampleHolder({ handlerIdempotent: false }) },
        },
        "running",
      ],
      [{ kind: "cancel_requested", at: SAMPLE_START_MS, reason: "no" }, "running"],
      [{ kind: "timed_out", at: SAMPLE_START_MS, error: CANCEL.error }, "needs_reconciliation"],
      [{ kind: "adopted", at: SAMPLE_START_MS, driver: "broker_b", from: "broker_a" }, "needs_reconciliation"],
      [{ kind: "reconciled", at: SAMPLE_START_MS, outcome: "applied", by: "key_1", note: null, value: null, error: null }, "succeeded"],
      [{ kind: "evidence", at: SAMPLE_START_MS, receipt: receiptFacts("entry_late") }, "succeeded"],
    ];
    for (const [entry, state] of steps) {
      const version = await scene.add("call_a", entry);
      expect(await listed(index, { state }, version), `${entry.kind} to ${state}`).toEqual(["call_a"]);
      expect(await listed(index, {}, version)).toEqual(["call_a"]);
    }
    expect(scene.log.lines).toEqual([]);
  });

  it("takes in calls that were stored before it starts and those that come while it starts", async () => {
    const scene = new Scene();
    for (let number = 0; number < 600; number += 1) {
      await scene.accept(`call_${number}`);
    }
    const [index] = await Promise.all([scene.start(), ...Array.from({ length: 50 }, (_, number) => scene.accept(`call_late_${number}`))]);
    expect(await listed(index, {}, 650)).toHaveLength(650);
  });

  it("goes on after a restart from where it was, and moves calls that were open then", async () => {
    const scene = new Scene();
    const file = indexFile();
    const first = await scene.start({ file });
    await scene.accept("call_a");
    await listed(first, {}, await scene.accept("call_b"));
    await first.stop();
    await scene.add("call_a", CANCEL);
    const version = await scene.accept("call_c");
    const tails: Version[] = [];
    const watched: Pick<Ledger, "tail" | "read" | "latest"> = {
      read: (callId, from) => scene.ledger.read(callId, from),
      latest: () => scene.ledger.latest(),
      tail: (from, signal) => {
        tails.push(from);
        return scene.ledger.tail(from, signal);
      },
    };
    const second = await scene.start({ file, ledger: watched });
    expect(await listed(second, {}, version)).toEqual(["call_c", "call_b", "call_a"]);
    expect(await listed(second, { state: "cancelled" })).toEqual(["call_a"]);
    expect(tails).toEqual([3]);
    expect(scene.log.lines).toEqual([]);
  });

  it("writes what it read when it is stopped at once", async () => {
    const scene = new Scene();
    const file = indexFile();
    const version = await scene.accept("call_a");
    const first = await scene.start({ file });
    await expect.poll(async () => (await first.list("default", {}, {}, { atLeast: version })).data.length).toBe(1);
    await scene.accept("call_b");
    await first.stop();
    const second = await scene.start({ file });
    expect(await listed(second, {}, 2)).toEqual(["call_b", "call_a"]);
  });

  it("follows more open calls than it keeps in memory", async () => {
    const scene = new Scene();
    const index = await scene.start({ callsInMemoryMax: 2 });
    for (let number = 0; number < 20; number += 1) {
      await listed(index, {}, await scene.accept(`call_${number}`));
    }
    let version = 0;
    for (let number = 0; number < 20; number += 2) {
      version = await scene.add(`call_${number}`, CANCEL);
    }
    expect(await listed(index, { state: "cancelled" }, version)).toHaveLength(10);
    expect(await listed(index, { state: "queued" })).toHaveLength(10);
  });

  it("skips an entry of an unknown format with a log line, and shows the call's other entries", async () => {
    const scene = new Scene();
    const index = await scene.start();
    await scene.accept("call_a");
    await scene.append("call_a", '{"f":2,"kind":"moon"}');
    await scene.append("call_b", "not json at all");
    await scene.append("call_c", '{"f":1,"kind":"accepted"}');
    await scene.append("call_d", "null");
    const version = await scene.add("call_a", CANCEL);
    expect(await listed(index, { state: "cancelled" }, version)).toEqual(["call_a"]);
    expect(await listed(index)).toEqual(["call_a"]);
    const skipped = scene.log.lines.filter(({ event }) => event === "call_index_entries_skipped");
    expect(skipped.map(({ fields }) => fields.reason)).toContain("unreadable");
    expect(skipped.reduce((sum, { fields }) => sum + Number(fields.count), 0)).toBe(4);
  });

  it("ignores an entry whose writer expected another one (L1)", async () => {
    const scene = new Scene();
    const index = await scene.start();
    await scene.accept("call_a");
    scene.store.entries.push({
      callId: "call_a",
      version: 2,
      previous: 0,
      entryId: "fork_0",
      data: encodeEntry(acceptedEntry(sampleRequest({ callId: "call_a", tool: "forked" }))),
    });
    scene.store.entries.push({ callId: "call_a", version: 3, previous: 2, entryId: "fork_1", data: encodeEntry(CANCEL) });
    const version = await scene.accept("call_b");
    expect(await listed(index, { state: "queued" }, version)).toEqual(["call_b", "call_a"]);
    expect(await listed(index, { tool: "forked" })).toEqual([]);
    expect(scene.log.lines.map(({ fields }) => fields.reason)).toEqual(["fork"]);
  });

  it("ignores a fork of a call that settled already, and one of a call it has forgotten", async () => {
    const scene = new Scene();
    const index = await scene.start({ callsInMemoryMax: 2 });
    await scene.accept("call_open");
    await scene.accept("call_settled");
    await scene.add("call_settled", CANCEL);
    await listed(index, {}, await scene.accept("call_new"));
    for (const callId of ["call_settled", "call_open"]) {
      const data = encodeEntry(acceptedEntry(sampleRequest({ callId })));
      scene.store.entries.push({ callId, version: scene.store.entries.length + 1, previous: 0, entryId: `fork_${callId}`, data });
    }
    expect(await listed(index, {}, await scene.accept("call_last"))).toEqual(["call_last", "call_new", "call_settled", "call_open"]);
    expect(await listed(index, { state: "cancelled" })).toEqual(["call_settled"]);
    expect(await listed(index, { state: "queued" })).toEqual(["call_last", "call_new", "call_open"]);
  });

  it("leaves out a call whose acceptance retention has taken (L6)", async () => {
    const scene = new Scene();
    await scene.accept("call_a");
    await scene.accept("call_b");
    await scene.add("call_a", CANCEL);
    scene.store.entriesOfCall.get("call_a")?.shift();
    const tailed: Pick<Ledger, "tail" | "read" | "latest"> = {
      read: (callId, from) => scene.ledger.read(callId, from),
      latest: () => scene.ledger.latest(),
      tail: (from, signal) => scene.ledger.tail(Math.max(from, 2), signal),
    };
    const index = await scene.start({ ledger: tailed });
    expect(await listed(index, {}, 3)).toEqual(["call_b"]);
    expect(scene.log.lines.map(({ fields }) => fields.reason)).toEqual(["acceptance_unknown"]);
  });

  it("goes on by itself after the ledger failed in the middle of a tail", async () => {
    const scene = new Scene();
    let failing = 2;
    const flaky: Pick<Ledger, "tail" | "read" | "latest"> = {
      read: (callId, from) => scene.ledger.read(callId, from),
      latest: () => scene.ledger.latest(),
      tail: async function* (from, signal) {
        for await (const stored of scene.ledger.tail(from, signal)) {
          yield stored;
          if (stored.version === 3 && failing > 0) {
            failing -= 1;
            throw new Error("connection lost");
          }
        }
      },
    };
    for (const callId of ["call_a", "call_b", "call_c", "call_d"]) {
      await scene.accept(callId);
    }
    const index = await scene.start({ ledger: flaky, catchUpWaitMs: 10_000, random: () => 0 });
    expect(await listed(index, {}, 4)).toEqual(["call_d", "call_c", "call_b", "call_a"]);
    expect(scene.log.lines.filter(({ event }) => event === "call_index_interrupted").length).toBeGreaterThanOrEqual(1);
  });

  it("answers with what it has after the ledger was closed", async () => {
    const scene = new Scene();
    const index = await scene.start();
    await listed(index, {}, await scene.accept("call_a"));
    await scene.ledger.close();
    await expect.poll(() => scene.log.lines.map(({ event }) => event)).toContain("call_index_ended");
    expect(await listed(index)).toEqual(["call_a"]);
  });
});
