import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { createManualClock } from "../testing/manual-clock.js";
import type { JournalRecord } from "./journal.js";
import {
  ACKNOWLEDGED_KEPT_MAX,
  ACKNOWLEDGED_KEPT_MS,
  ACKNOWLEDGED_PAYLOAD_MAX,
  JournalPicture,
  SUBMITTED_KEPT_MS,
} from "./journal-picture.js";
import type { Outcome } from "./messages.js";

/** The manual clock's beginning. */
const NOW = 1_700_000_000_000;
const granted = (id: string, fence = 1): JournalRecord => ({
  kind: "granted",
  callId: `call_${id}`,
  grantId: id,
  fence,
  attempt: 1,
  tool: "t",
  version: "1",
  at: 0,
});
const finished = (id: string, at = 0, outcome: Outcome = { kind: "succeeded", resultJson: "1" }): JournalRecord => ({
  kind: "finished",
  at,
  receipt: { callId: `call_${id}`, grantId: id, fence: 1, attempt: 1, digest: id, startedAtUnixMs: 1, finishedAtUnixMs: 2, outcome },
});
const acknowledged = (id: string, at = 0): JournalRecord => ({ kind: "acknowledged", grantId: id, at });
const unacknowledged = (picture: JournalPicture) => [...picture.unacknowledged()].map((entry) => entry.grantId);

describe("what a journal's records say", () => {
  it("follows a grant from granted to acknowledged", () => {
    const picture = new JournalPicture(createManualClock());
    picture.apply(granted("g"));
    picture.apply({ kind: "started", grantId: "g", at: 5 });
    expect(picture.get("g")).toMatchObject({ phase: "started", startedHere: true, startedAt: 5 });
    picture.apply(finished("g"));
    expect(picture.get("g")).toMatchObject({ phase: "finished", acknowledged: false });
    expect(unacknowledged(picture)).toEqual(["g"]);
    picture.apply(acknowledged("g"));
    expect(unacknowledged(picture)).toEqual([]);
  });

  it("knows a start of an earlier process as one whose outcome is unknown", () => {
    const clock = createManualClock();
    const picture = new JournalPicture(clock);
    picture.apply({ ...granted("g") });
    picture.apply({ kind: "started", grantId: "g", at: clock.now() });
    expect(picture.reopened(clock).get("g")).toMatchObject({ phase: "started", startedHere: false });
  });

  it("keeps the highest refused fence of a call (G1)", () => {
    const picture = new JournalPicture(createManualClock());
    expect(picture.refusedFence("call_g")).toBeNull();
    picture.apply({ kind: "refused", callId: "call_g", grantId: "b", fence: 9, neverStarted: true, at: 0 });
    picture.apply({ kind: "refused", callId: "call_g", grantId: "a", fence: 4, neverStarted: true, at: 0 });
    expect(picture.refusedFence("call_g")).toBe(9);
  });

  it("keeps a start without an end while thousands of others come and go, and knows up to which fence it dropped any (G1)", () => {
    const clock = createManualClock();
    const picture = new JournalPicture(clock);
    picture.apply(granted("lost", 2));
    picture.apply({ kind: "started", grantId: "lost", at: clock.now() });
    const later = picture.reopened(clock);
    expect(later.forgottenFence).toBe(0);
    for (let index = 0; index <= ACKNOWLEDGED_KEPT_MAX; index += 1) {
      later.apply(granted(`g${index}`, 10 + index));
      later.apply(finished(`g${index}`, clock.now()));
      later.apply(acknowledged(`g${index}`, clock.now()));
    }
    expect(later.get("g0")).toBeUndefined();
    expect(later.get("lost")).toMatchObject({ phase: "started", acknowledged: false });
    expect(later.forgottenFence).toBe(10);
    expect(later.reopened(clock).forgottenFence).toBe(10);
    // What never began is dropped without a trace: that it is not known is then true.
    later.apply({ kind: "refused", callId: "call_r", grantId: "r", fence: 99_999, neverStarted: true, at: clock.now() });
    later.apply(acknowledged("r", clock.now()));
    clock.advance(ACKNOWLEDGED_KEPT_MS + 1);
    later.prune();
    expect(later.get("r")).toBeUndefined();
    expect(later.forgottenFence).toBe(10 + ACKNOWLEDGED_KEPT_MAX);
  });

  it("takes a refusal of a grant that it does not know, and that may have begun, for a start whose end nobody knows (G1)", () => {
    const picture = new JournalPicture(createManualClock());
    picture.apply({ kind: "refused", callId: "call_g", grantId: "g", fence: 4, neverStarted: false, at: 0 });
    expect(picture.get("g")).toMatchObject({ phase: "started", startedHere: false, refused: true });
  });

  it("takes a start back only when the refusal says that the handler never began", () => {
    const picture = new JournalPicture(createManualClock());
    for (const [id, neverStarted] of [
      ["withdrawn", true],
      ["running", false],
    ] as const) {
      picture.apply(granted(id));
      picture.apply({ kind: "started", grantId: id, at: 1 });
      picture.apply({ kind: "refused", callId: `call_${id}`, grantId: id, fence: 1, neverStarted, at: 2 });
    }
    expect(picture.get("withdrawn")?.phase).toBe("granted");
    expect(picture.get("running")?.phase).toBe("started");
  });

  it("opens a submitted call again for its final receipt, and keeps it settleable for 30 days", () => {
    const clock = createManualClock();
    const picture = new JournalPicture(clock);
    picture.apply(finished("g", clock.now(), { kind: "submitted", handleJson: '"h"' }));
    picture.apply(acknowledged("g", clock.now()));
    clock.jumpWall(SUBMITTED_KEPT_MS - 1);
    picture.prune();
    expect(picture.get("g")?.receipt?.outcome.kind).toBe("submitted");
    picture.apply(finished("g", clock.now()));
    expect(unacknowledged(picture)).toEqual(["g"]);
    const other = new JournalPicture(clock);
    other.apply(finished("h", clock.now(), { kind: "submitted", handleJson: '"h"' }));
    other.apply(acknowledged("h", clock.now()));
    clock.jumpWall(SUBMITTED_KEPT_MS);
    other.prune();
    expect(other.get("h")).toBeUndefined();
  });
});

describe("what a journal keeps (J3, G5)", () => {
  it("keeps acknowledged records for 24 h, then forgets them", () => {
    const clock = createManualClock();
    const picture = new JournalPicture(clock);
    picture.apply(finished("g", clock.now()));
    picture.apply(acknowledged("g", clock.now()));
    clock.jumpWall(ACKNOWLEDGED_KEPT_MS - 1);
    picture.prune();
    expect(picture.get("g")).toBeDefined();
    clock.jumpWall(1);
    picture.prune();
    expect(picture.get("g")).toBeUndefined();
    expect(picture.ofCall("call_g")).toEqual([]);
  });

  it("keeps only the newest acknowledged ones when they are many, and every unacknowledged one", () => {
    const clock = createManualClock();
    const picture = new JournalPicture(clock);
    picture.apply(finished("waiting", clock.now()));
    for (let index = 0; index < ACKNOWLEDGED_KEPT_MAX + 10; index++) {
      picture.apply(finished(`g${index}`, clock.now()));
      picture.apply(acknowledged(`g${index}`, clock.now()));
    }
    expect(picture.size).toBe(ACKNOWLEDGED_KEPT_MAX + 1);
    expect(picture.get("g9")).toBeUndefined();
    expect(picture.get("g10")).toBeDefined();
    expect(picture.get("waiting")).toBeDefined();
  });

  it("bounds the payload that acknowledged records hold", () => {
    const clock = createManualClock();
    const picture = new JournalPicture(clock);
    const big = JSON.stringify("x".repeat(ACKNOWLEDGED_PAYLOAD_MAX / 4));
    for (let index = 0; index < 6; index++) {
      picture.apply(finished(`g${index}`, clock.now(), { kind: "succeeded", resultJson: big }));
      picture.apply(acknowledged(`g${index}`, clock.now()));
    }
    expect(picture.size).toBe(3);
  });

  it("gives the same picture whether it is made of records or of stored entries, in any order of records", () => {
    const id = fc.constantFrom("a", "b", "c");
    const record = fc.oneof(
      id.map((grantId) => granted(grantId)),
      id.map((grantId): JournalRecord => ({ kind: "started", grantId, at: NOW })),
      id.map((grantId) => finished(grantId, NOW)),
      id.map((grantId) => acknowledged(grantId, NOW)),
      fc.tuple(id, fc.boolean()).map(
        ([grantId, neverStarted]): JournalRecord => ({
          kind: "refused",
          callId: `call_${grantId}`,
          grantId,
          fence: 1,
          neverStarted,
          at: NOW,
        }),
      ),
    );
    fc.assert(
      fc.property(fc.array(record, { maxLength: 30 }), (records) => {
        const clock = createManualClock();
        const first = new JournalPicture(clock);
        for (const one of records) first.apply(one);
        const second = new JournalPicture(clock);
        for (const entry of first.entries()) second.restore(entry);
        expect([...second.entries()]).toEqual([...first.entries()]);
        expect(unacknowledged(second).sort()).toEqual(unacknowledged(first).sort());
      }),
    );
  });
});
