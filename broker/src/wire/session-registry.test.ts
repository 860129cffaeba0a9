import { createMemoryChannelPair } from "@toolrunner/proto";
import { describe, expect, it } from "vitest";
import { systemClock } from "../app/system.js";
import { handlerKey, type Requirement } from "./requirement.js";
import { freeSlots, type Session } from "./session.js";
import { SessionGrants } from "./session-grants.js";
import { SessionRegistry } from "./session-registry.js";
import { SessionWork } from "./session-work.js";
import { createTimerWheel } from "./timer-wheel.js";

function session(runnerId: string, more: Partial<Session> & { readonly tools?: readonly string[] } = {}): Session {
  const { tools = ["echo"], ...rest } = more;
  return {
    ref: { brokerId: "broker", application: "default", binding: "shop", runnerId, sessionEpoch: 1 },
    channel: createMemoryChannelPair().broker,
    bindingKind: "backend",
    subject: null,
    keyId: "key",
    journalId: `journal of ${runnerId}`,
    sdk: "",
    connectedAtMs: 0,
    handlers: new Map(
      tools.map((tool) => [
        handlerKey("default", "shop", tool, "1"),
        { tool, version: "1", idempotent: false, cancellable: false, readOnly: false, reconciles: false },
      ]),
    ),
    grants: new SessionGrants(() => undefined),
    work: new SessionWork(createTimerWheel(systemClock, () => undefined)),
    slots: 2,
    reserved: 0,
    sight: 2,
    focused: false,
    draining: false,
    expired: false,
    congested: false,
    bringing: false,
    closed: false,
    pingNumber: 0,
    pongNumber: 0,
    relayedPong: undefined,
    newsCount: 0,
    declines: 0,
    leftAloneUntilMs: 0,
    awaitsDefinitions: undefined,
    ...rest,
  };
}

const NEED: Requirement = { application: "default", binding: "shop", tool: "echo", version: "1", subject: null };
const TAB = { bindingKind: "browser" } as const;

function registryOf(...sessions: Session[]): SessionRegistry {
  const registry = new SessionRegistry();
  for (const each of sessions) {
    registry.add(each);
  }
  return registry;
}

describe("the choice of a runner", () => {
  it("needs application, binding, tool and exact version (X3)", () => {
    const registry = registryOf(session("one"));
    expect(registry.reserve(NEED, 0)?.session.ref.runnerId).toBe("one");
    for (const other of [{ application: "other" }, { binding: "store" }, { tool: "other" }, { version: "2" }]) {
      expect(registry.reserve({ ...NEED, ...other }, 0)).toBeUndefined();
    }
  });

  it("never offers a tab of another subject, nor one without a subject to a call of a backend (X4, I8)", () => {
    const registry = registryOf(session("ana", { ...TAB, subject: "ana" }), session("ben", { ...TAB, subject: "ben" }));
    expect(registry.reserve({ ...NEED, subject: "ben" }, 0)?.session.ref.runnerId).toBe("ben");
    expect(registry.reserve({ ...NEED, subject: "eve" }, 0)).toBeUndefined();
    expect(registry.reserve(NEED, 0)).toBeUndefined();
    expect(registryOf(session("backend")).reserve({ ...NEED, subject: "ana" }, 0)).toBeUndefined();
  });

  it("prefers the visible tab, then the worker of which nobody knows, and of equals the focused one (X4, R1), then the least loaded, then each in turn", () => {
    const subject = "ana";
    const hidden = session("hidden", { ...TAB, subject, sight: 0 });
    const worker = session("worker", { ...TAB, subject, sight: 1, focused: true, slots: 1 });
    const visible = session("visible", { ...TAB, subject });
    const focused = session("focused", { ...TAB, subject, focused: true, slots: 1 });
    const registry = registryOf(hidden, worker, visible, focused);
    const order = Array.from({ length: 7 }, () => registry.reserve({ ...NEED, subject }, 0)?.session.ref.runnerId);
    expect(order).toEqual(["focused", "visible", "visible", "worker", "hidden", "hidden", undefined]);
    const turns = registryOf(session("one"), session("two"), session("three"));
    expect(Array.from({ length: 6 }, () => turns.reserve(NEED, 0)?.session.ref.runnerId)).toEqual([
      "one",
      "two",
      "three",
      "one",
      "two",
      "three",
    ]);
  });

  it("counts reservations and unfinished grants, and gives each slot back once", () => {
    const one = session("one");
    const registry = registryOf(one);
    const reservation = registry.reserve(NEED, 0);
    one.grants.add({ callId: "c", grantId: "g", fence: 1, driver: "d", listedFromPing: 1 });
    expect(freeSlots(one)).toBe(0);
    expect(registry.reserve(NEED, 0)).toBeUndefined();
    expect(registry.whyNot(NEED)).toBe("capacity");
    reservation?.release();
    reservation?.release();
    expect(freeSlots(one)).toBe(1);
  });

  it("passes over runners that drain, are closed, or declined a moment ago (B3)", () => {
    expect(registryOf(session("draining", { draining: true })).reserve(NEED, 0)).toBeUndefined();
    expect(registryOf(session("closed", { closed: true })).reserve(NEED, 0)).toBeUndefined();
    const declined = session("declined", { leftAloneUntilMs: 500 });
    const registry = registryOf(declined);
    expect(registry.reserve(NEED, 499)).toBeUndefined();
    registry.freed(declined);
    expect(registry.reserve(NEED, 500)).toBeDefined();
  });

  it("says whether the runner, the handler or a slot is missing", () => {
    const registry = registryOf(session("one", { tools: ["other"] }));
    expect(registry.whyNot({ ...NEED, binding: "store" })).toBe("runner");
    expect(registry.whyNot(NEED)).toBe("handler");
    const tab = registryOf(session("tab", { ...TAB, subject: "ana" }));
    expect(tab.whyNot({ ...NEED, subject: "ben" })).toBe("runner");
  });

  it("forgets a session that was removed, and keeps the newer one of the same runner", () => {
    const old = session("one");
    const newer = session("one");
    const registry = registryOf(old, newer);
    registry.remove(old);
    expect(registry.find(newer.ref)).toBe(newer);
    registry.remove(newer);
    expect(registry.size).toBe(0);
    expect(registry.reserve(NEED, 0)).toBeUndefined();
    expect(registry.whyNot(NEED)).toBe("runner");
  });

  it("does not look at full runners again before one of them is named, however many there are", () => {
    let looks = 0;
    const busy = Array.from({ length: 5_000 }, (_, index) => {
      const one = session(`busy_${index}`, { slots: 1, reserved: 1 });
      return Object.defineProperty(one, "draining", {
        get() {
          looks += 1;
          return false;
        },
      });
    });
    const registry = registryOf(...busy);
    expect(registry.reserve(NEED, 0)).toBeUndefined();
    expect(looks).toBe(busy.length);
    looks = 0;
    expect(registry.reserve(NEED, 0)).toBeUndefined();
    expect(looks).toBe(0);
    const freed = busy[4_321] as Session;
    freed.reserved = 0;
    registry.freed(freed);
    expect(registry.reserve(NEED, 0)?.session).toBe(freed);
    expect(registry.reserve(NEED, 0)).toBeUndefined();
    expect(looks).toBeLessThan(5);
  });

  it("finds a runner whose reservation was given back, and one that was removed never", () => {
    const one = session("one", { slots: 1 });
    const registry = registryOf(one);
    const reservation = registry.reserve(NEED, 0);
    expect(registry.reserve(NEED, 0)).toBeUndefined();
    reservation?.release();
    expect(registry.reserve(NEED, 0)?.session).toBe(one);
    expect(registry.reserve(NEED, 0)).toBeUndefined();
    registry.remove(one);
    one.reserved = 0;
    registry.freed(one);
    expect(registry.reserve(NEED, 0)).toBeUndefined();
  });

  it("compares a bounded number of runners, the longest unused of them", () => {
    const loaded = Array.from({ length: 2_000 }, (_, index) => session(`one_${index}`, { slots: 1_000, reserved: 1 }));
    const registry = registryOf(...loaded);
    const chosen = new Set<string>();
    for (let call = 0; call < loaded.length; call += 1) {
      chosen.add(registry.reserve(NEED, 0)?.session.ref.runnerId ?? "none");
    }
    expect(chosen.size).toBe(loaded.length);
  });

  it("reserves of a runner that is named, if it serves the call and has a slot", () => {
    const [one, two] = [session("one", { slots: 1 }), session("two")];
    const registry = registryOf(one, two);
    expect(registry.reserveOf(two, NEED)?.session).toBe(two);
    expect(registry.reserveOf(one, { ...NEED, tool: "other" })).toBeUndefined();
    expect(registry.reserveOf(one, NEED)?.session).toBe(one);
    expect(registry.reserveOf(one, NEED)).toBeUndefined();
    expect(registry.reserveOf(session("stranger"), NEED)).toBeUndefined();
  });
});
