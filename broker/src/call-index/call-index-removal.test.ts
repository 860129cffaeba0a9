import Database from "better-sqlite3";
import { afterEach, describe, expect, it } from "vitest";
import { CANCEL, indexFile, listed, Scene, tidy } from "./testing/index-scene.js";

afterEach(tidy);

/** Removes the call from the ledger, as retention does. */
async function removed(scene: Scene, callId: string): Promise<{ readonly callId: string; readonly opened: number }> {
  const versions = (scene.store.entriesOfCall.get(callId) ?? []).map(({ version }) => version);
  await scene.ledger.remove(callId, versions);
  return { callId, opened: versions[0] ?? 0 };
}

describe("an index of calls some of which retention removed (X12)", () => {
  it("drops their rows, and what only they were found by, when it is told", async () => {
    const scene = new Scene();
    const file = indexFile();
    const index = await scene.start({ file });
    await scene.accept("call_a", { tool: "rare", session: "session_1" });
    await scene.add("call_a", CANCEL);
    await scene.accept("call_b");
    const last = await scene.add("call_b", CANCEL);
    expect(await listed(index, {}, last)).toEqual(["call_b", "call_a"]);
    index.dropped([await removed(scene, "call_a")]);
    expect(await listed(index)).toEqual(["call_b"]);
    for (const filter of [{ tool: "rare" }, { session: "session_1" }]) expect(await listed(index, filter)).toEqual([]);
    expect(await listed(index, { state: "cancelled" })).toEqual(["call_b"]);
    await index.stop();
    const database = new Database(file, { readonly: true });
    expect(database.prepare("SELECT count(*) FROM calls").pluck().get()).toBe(1);
    const values = database.prepare("SELECT name, value FROM spans ORDER BY name").raw().all();
    database.close();
    expect(values).not.toContainEqual(["tool", "rare"]);
    expect(values).toContainEqual(["state", "cancelled"]);
  });

  it("shows a new call under the id of one that it remembers, once, and keeps it when it is told late of the old one", async () => {
    const scene = new Scene();
    const index = await scene.start();
    await scene.accept("call_a");
    const settled = await scene.add("call_a", CANCEL);
    expect(await listed(index, {}, settled)).toEqual(["call_a"]);
    const old = await removed(scene, "call_a");
    const fresh = await scene.accept("call_a", { subject: "user_9" });
    expect(await listed(index, { subject: "user_9" }, fresh)).toEqual(["call_a"]);
    index.dropped([old]);
    index.dropped([old]);
    expect(await listed(index)).toEqual(["call_a"]);
    expect(await listed(index, { state: "queued" })).toEqual(["call_a"]);
    const cancelled = await scene.add("call_a", CANCEL);
    expect(await listed(index, { state: "cancelled" }, cancelled)).toEqual(["call_a"]);
  });

  it("is built anew from what is left, also of a call whose removal was cut off", async () => {
    const scene = new Scene();
    await scene.accept("call_a");
    await scene.add("call_a", CANCEL);
    await scene.accept("call_b");
    await removed(scene, "call_a");
    await scene.accept("call_c");
    const last = await scene.add("call_c", CANCEL);
    await scene.ledger.remove("call_c", [scene.store.entriesOfCall.get("call_c")?.[0]?.version ?? 0]);
    expect(await listed(await scene.start(), {}, last)).toEqual(["call_b"]);
  });

  it("is recognised, or built anew, when the entry that it was last at is gone", async () => {
    const scene = new Scene();
    const file = indexFile();
    const before = await scene.start({ file });
    await scene.accept("call_a");
    await scene.accept("call_b");
    const last = await scene.add("call_b", CANCEL);
    expect(await listed(before, {}, last)).toEqual(["call_b", "call_a"]);
    await before.stop();
    await removed(scene, "call_b");
    expect(await listed(await scene.start({ file }))).toEqual(["call_a"]);
  });

  it("takes news of calls that it does not know, before it is ready and after its end", async () => {
    const scene = new Scene();
    const index = await scene.start();
    index.dropped([{ callId: "call_x", opened: 7 }]);
    await scene.accept("call_a");
    expect(await listed(index)).toEqual(["call_a"]);
    index.dropped([{ callId: "call_x", opened: 1 }]);
    expect(await listed(index)).toEqual(["call_a"]);
    await index.stop();
    index.dropped([{ callId: "call_a", opened: 1 }]);
  });
});
