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
        { tool, version: "1", idempotent: false, cancellable: false, readOnly: false },
      ]),
    ),
    grants: new SessionGrants(() => undefined),
    work: new SessionWork(createTimerWheel(systemClock, () => undefined)),
    slots: 2,
    reserved: 0,
    visible: true,
    focused: false,
    draining: false,
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

  it("prefers the visible tab, then the focused one, then the least loaded, then each in turn", () => {
    const subject = "ana";
    const hidden = session("hidden", { ...TAB, subject, visible: false });
    const visible = session("visible", { ...TAB, subject });
    const focused = session("focused", { ...TAB, subject, focused: true, slots: 1 });
    const registry = registryOf(hidden, visible, focused);
    const order = Array.from({ length: 6 }, () => registry.reserve({ ...NEED, subject }, 0)?.session.ref.runnerId);
    expect(order).toEqual(["focused", "visible", "visible", "hidden", "hidden", undefined]);
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
    const declined = registryOf(session("declined", { leftAloneUntilMs: 500 }));
    expect(declined.reserve(NEED, 499)).toBeUndefined();
    expect(declined.reserve(NEED, 500)).toBeDefined();
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
});
