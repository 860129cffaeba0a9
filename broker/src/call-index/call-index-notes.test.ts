import { afterEach, describe, expect, it } from "vitest";
import { encodeEntry } from "../domain/call/entry-codec.js";
import type { Ledger, Version } from "../domain/ports/ledger.js";
import { acceptedEntry, sampleRequest } from "../testing/sample-call.js";
import { indexFile, listed, Scene, tidy } from "./testing/index-scene.js";

afterEach(tidy);

describe("following the ledger by notes", () => {
  const NAMES = '["queued","default","refund","shop","shop",null,"user_1",null]';
  /** The data is nothing that can be read: whatever is listed was said by notes. */
  const noted = (scene: Scene, callId: string, note: string): Promise<Version> => scene.append(callId, "unreadable", note);
  const skips = (scene: Scene): unknown[] => scene.log.lines.map(({ fields }) => [fields.reason, fields.count]);

  it("shows and moves calls without reading their entries, also calls it has forgotten, and after a restart", async () => {
    const scene = new Scene();
    const file = indexFile();
    const reads: string[] = [];
    const ledger: Pick<Ledger, "tail" | "read" | "latest"> = {
      tail: (from, signal) => scene.ledger.tail(from, signal),
      latest: () => scene.ledger.latest(),
      read: (callId, from) => {
        reads.push(callId);
        return scene.ledger.read(callId, from);
      },
    };
    const first = await scene.start({ file, ledger, callsInMemoryMax: 1 });
    for (const callId of ["call_a", "call_b", "call_c"]) await listed(first, {}, await noted(scene, callId, NAMES));
    await noted(scene, "call_a", "running");
    await noted(scene, "call_a", "=running");
    expect(await listed(first, { state: "running" })).toEqual(["call_a"]);
    await first.stop();
    const second = await scene.start({ file, ledger, callsInMemoryMax: 1 });
    await noted(scene, "call_a", "succeeded");
    await noted(scene, "call_b", "=queued");
    await noted(scene, "call_a", "=succeeded");
    expect(await listed(second, { state: "succeeded", subject: "user_1" })).toEqual(["call_a"]);
    expect(await listed(second, { state: "queued" })).toEqual(["call_c", "call_b"]);
    // Only to recognise its ledger, by one entry.
    expect(reads).toHaveLength(1);
    expect(skips(scene)).toEqual([]);
  });

  it("ignores what does not follow the call's last entry (L1), of known and of forgotten calls", async () => {
    const scene = new Scene();
    const index = await scene.start({ callsInMemoryMax: 1 });
    const fork = (callId: string, previous: Version, note: string): void => {
      scene.store.entries.push({
        callId,
        version: scene.store.entries.length + 1,
        previous,
        entryId: `fork_${scene.store.entries.length}`,
        data: "unreadable",
        note,
      });
    };
    await listed(index, {}, await noted(scene, "call_a", NAMES));
    await listed(index, {}, await noted(scene, "call_b", NAMES));
    fork("call_a", 0, NAMES);
    fork("call_a", 7, "running");
    fork("call_b", 0, NAMES);
    fork("call_b", 0, "cancelled");
    await listed(index, {}, await noted(scene, "call_c", NAMES));
    expect(await listed(index, { state: "queued" })).toEqual(["call_c", "call_b", "call_a"]);
    expect(skips(scene)).toEqual([["fork", 4]]);
  });

  it("leaves out a call whose acceptance is gone, and tells it from evidence of a settled one", async () => {
    const scene = new Scene();
    const index = await scene.start();
    await noted(scene, "call_a", "=succeeded");
    await noted(scene, "call_b", "succeeded");
    await noted(scene, "call_c", "running");
    await noted(scene, "call_d", "=queued");
    expect(await listed(index)).toEqual([]);
    await index.stop();
    expect(skips(scene)).toEqual([["acceptance_unknown", 3]]);
  });

  it("reads an entry whose note is of another form", async () => {
    const scene = new Scene();
    const index = await scene.start();
    const data = encodeEntry(acceptedEntry(sampleRequest({ callId: "call_a" })));
    await scene.append("call_a", data, '["queued","of a newer broker"]');
    await noted(scene, "call_a", "running");
    await scene.append("call_b", "unreadable", "orbiting");
    expect(await listed(index)).toEqual(["call_a"]);
    expect(await listed(index, { state: "running" })).toEqual(["call_a"]);
    await index.stop();
    expect(skips(scene)).toEqual([["unreadable", 1]]);
  });
});
