import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { OwnOpenCalls, type PendingOpening } from "./own-open-calls.js";

describe("own open calls", () => {
  it("scan from behind the newest version when nothing is open (L4)", () => {
    const own = new OwnOpenCalls(41);
    expect(own.scanFrom).toBe(42);
    own.stored(50);
    own.stored(45);
    expect([own.newest, own.scanFrom, own.size]).toEqual([50, 51, 0]);
  });

  it("hold the scan at an opening that is not known yet, wherever it may land (L4)", () => {
    const own = new OwnOpenCalls(10);
    const opening = own.sent();
    own.stored(99);
    expect(own.scanFrom).toBe(11);
    own.opened(opening, "call_a", 60, 0);
    expect(own.scanFrom).toBe(60);
    expect(own.settled("call_a")).toBe(true);
    expect(own.scanFrom).toBe(100);
  });

  it("let go of a call with its marker, and say when the marker has to go again (L4)", () => {
    const own = new OwnOpenCalls(0);
    own.opened(own.sent(), "call_a", 1, 0);
    own.opened(own.sent(), "call_b", 2, 500);
    own.stored(2);
    expect(own.takeUnmarked(100, 10)).toEqual(["call_a"]);
    expect(own.takeUnmarked(100, 10)).toEqual([]);
    expect(own.scanFrom).toBe(1);
    expect(own.marked("call_a")).toBe(true);
    expect(own.scanFrom).toBe(2);
    expect(own.takeUnmarked(500, 10)).toEqual(["call_b"]);
    expect(own.settled("call_b"), "its marker is under way").toBe(false);
    expect(own.marked("call_b"), "it settled meanwhile").toBe(false);
    expect(own.scanFrom).toBe(3);
  });

  it("go back with a server that lost its newest entries", () => {
    const own = new OwnOpenCalls(100);
    const opening = own.sent();
    own.rolledBack(40);
    expect(own.scanFrom).toBe(41);
    own.opened(opening, "call_a", 41, 0);
    expect(own.scanFrom).toBe(41);
  });

  it("never scan past a call that is neither marked nor settled, in any order of events (L4)", () => {
    const events = fc.array(
      fc.oneof(
        fc.constant({ kind: "send" as const }),
        fc.record({ kind: fc.constantFrom("land" as const, "refuse" as const, "settle" as const, "mark" as const), pick: fc.nat(20) }),
        fc.record({ kind: fc.constant("other" as const), gap: fc.integer({ min: 1, max: 5 }) }),
      ),
      { maxLength: 200 },
    );
    fc.assert(
      fc.property(events, (sequence) => {
        const own = new OwnOpenCalls(0);
        let stream = 0;
        let calls = 0;
        const pending: PendingOpening[] = [];
        const landed: { opening: PendingOpening; version: number; callId: string }[] = [];
        const unmarked = new Map<string, number>();
        const take = <T>(list: T[], pick: number): T | undefined => list.splice(pick % Math.max(1, list.length), 1)[0];
        for (const event of sequence) {
          if (event.kind === "send") {
            pending.push(own.sent());
          } else if (event.kind === "other") {
            stream += event.gap;
            own.stored(stream);
          } else if (event.kind === "land") {
            const opening = take(pending, event.pick);
            if (opening === undefined) continue;
            // Stored now, acknowledged at once or after the next landing.
            stream += 1;
            calls += 1;
            landed.push({ opening, version: stream, callId: `call_${calls}` });
            const known = landed.length > 1 ? landed.shift() : undefined;
            if (known === undefined) continue;
            own.stored(known.version);
            own.opened(known.opening, known.callId, known.version, 0);
            unmarked.set(known.callId, known.version);
          } else if (event.kind === "refuse") {
            const opening = take(pending, event.pick);
            if (opening !== undefined) own.notOpened(opening);
          } else {
            const callId = [...unmarked.keys()][event.pick % Math.max(1, unmarked.size)];
            if (callId === undefined) continue;
            unmarked.delete(callId);
            if (event.kind === "settle") own.settled(callId);
            else own.marked(callId);
          }
          const open = [...unmarked.values(), ...landed.map(({ version }) => version)];
          for (const version of open) expect(own.scanFrom).toBeLessThanOrEqual(version);
        }
      }),
    );
  });
});
