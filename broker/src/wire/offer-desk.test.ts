import { createMemoryChannelPair } from "@toolrunner/proto";
import { describe, expect, it } from "vitest";
import { createLocalBusHub } from "../bus/local/local-bus.js";
import type { OfferAnswer } from "./commands.js";
import { DEFAULT_FIGURES } from "./figures.js";
import { OfferDesk } from "./offer-desk.js";
import { handlerKey, handlerKeyOf, handlerToken, type Requirement } from "./requirement.js";
import { Random, SimProcess, simIds, World } from "./schedule/world.test.kit.js";
import { freeSlots, type Session } from "./session.js";
import { SessionGrants } from "./session-grants.js";
import { SessionRegistry } from "./session-registry.js";
import { SessionWork } from "./session-work.js";
import { createTimerWheel } from "./timer-wheel.js";

const NEED: Requirement = { application: "default", binding: "shop", tool: "echo", version: "1", subject: null };
const SUBJECT = `offer.${handlerToken(handlerKeyOf(NEED))}`;

/** A desk with one runner of `slots` slots, and another broker that makes offers. */
function stage(slots: number) {
  const world = new World(new Random(1));
  const { clock } = new SimProcess(world, "broker");
  const hub = createLocalBusHub({ clock: { schedule: (delayMs, task) => world.after(delayMs, task) } });
  const timers = createTimerWheel(clock, (error) => {
    throw error;
  });
  const registry = new SessionRegistry();
  const freed: string[] = [];
  const desk = new OfferDesk({
    brokerId: "broker",
    bus: hub.connect(),
    clock,
    ids: simIds(new Random(2)),
    figures: { ...DEFAULT_FIGURES, leaseMs: 15_000, reservationMs: 1_000 },
    timers,
    registry,
    freed: (session) => freed.push(session.ref.runnerId),
  });
  const session: Session = {
    ref: { brokerId: "broker", application: "default", binding: "shop", runnerId: "runner_1", sessionEpoch: 1 },
    channel: createMemoryChannelPair().broker,
    bindingKind: "backend",
    subject: null,
    keyId: "key",
    journalId: "journal_1",
    sdk: "",
    connectedAtMs: 0,
    handlers: new Map([
      [
        handlerKey("default", "shop", "echo", "1"),
        { tool: "echo", version: "1", idempotent: false, cancellable: false, readOnly: false, reconciles: false },
      ],
    ]),
    grants: new SessionGrants(() => undefined),
    work: new SessionWork(timers),
    slots,
    reserved: 0,
    sight: 2,
    focused: false,
    draining: false,
    expired: false,
    congested: false,
    bringing: false,
    closed: false,
    pingNumber: 5,
    pongNumber: 4,
    relayedPong: 3,
    newsCount: 0,
    declines: 0,
    leftAloneUntilMs: 0,
    awaitsDefinitions: undefined,
  };
  registry.add(session);
  desk.sessionAdded(session);
  const other = hub.connect();
  return {
    desk,
    session,
    freed,
    registry,
    pass: async (ms: number) => void (await world.run(world.now + ms, () => false)),
    taken: (callId: string, offerId: string | null) => other.publish("taken", JSON.stringify({ callId, offerId })),
    async askAlone(callId: string): Promise<OfferAnswer | null> {
      let answer: string | undefined;
      other.request("broker.broker.offer", JSON.stringify({ callId, requirement: NEED }), { timeoutMs: 100 }).then(
        (found) => {
          answer = found;
        },
        () => undefined,
      );
      await world.run(world.now + 200, () => answer !== undefined);
      return JSON.parse(answer ?? "{}") as OfferAnswer | null;
    },
    async offer(callId: string): Promise<OfferAnswer | undefined> {
      let answers: string[] | undefined;
      other.requestMany(SUBJECT, JSON.stringify({ callId, requirement: NEED }), { timeoutMs: 100, max: 9 }).then(
        (found) => {
          answers = found;
        },
        () => undefined,
      );
      await world.run(world.now + 200, () => answers !== undefined);
      const first = answers?.[0];
      return first === undefined ? undefined : (JSON.parse(first) as OfferAnswer);
    },
  };
}

describe("answers to the offers of other brokers", () => {
  it("reserve a slot each, one for a call at a time, and none when all are taken", async () => {
    const { offer, session } = stage(2);
    expect((await offer("call_1"))?.session.runnerId).toBe("runner_1");
    expect(await offer("call_1")).toBeUndefined();
    expect(await offer("call_2")).toBeDefined();
    expect([freeSlots(session), await offer("call_3")]).toEqual([0, undefined]);
  });

  it("are taken up once, for their own call, with the ping answer of that moment (G3)", async () => {
    const { desk, offer, session } = stage(1);
    const { offerId = "" } = (await offer("call_1")) ?? {};
    session.pongNumber = 9;
    expect(desk.take(offerId, "call_2")).toBeUndefined();
    const claim = desk.take(offerId, "call_1");
    expect(claim).toMatchObject({ session, pongNumber: 4 });
    expect(desk.take(offerId, "call_1")).toBeUndefined();
    expect(session.reserved).toBe(1);
    claim?.release();
    expect([session.reserved, desk.size]).toEqual([0, 0]);
  });

  it("give the slot back after a moment; who comes a little later gets it if it is still free", async () => {
    const { desk, offer, pass, session, freed } = stage(1);
    const { offerId = "" } = (await offer("call_1")) ?? {};
    await pass(1_200);
    expect([session.reserved, freed]).toEqual([0, ["runner_1"]]);
    expect(desk.take(offerId, "call_1")?.session).toBe(session);

    const second = (await offer("call_2"))?.offerId ?? "";
    await pass(1_200);
    session.grants.add({ callId: "call_3", grantId: "g", fence: 1, driver: undefined, listedFromPing: 1 });
    expect(desk.take(second, "call_2")).toBeUndefined();
  });

  it("give the slot back at once when the call is granted for another broker's answer, or for none", async () => {
    const { desk, offer, pass, session, taken } = stage(2);
    desk.start();
    const mine = (await offer("call_1"))?.offerId ?? "";
    taken("call_1", "offer_of_another");
    await pass(10);
    expect([session.reserved, desk.take(mine, "call_1")]).toEqual([0, undefined]);
    const second = (await offer("call_2"))?.offerId ?? "";
    taken("call_2", second);
    await pass(10);
    expect(desk.take(second, "call_2")?.session).toBe(session);
    await offer("call_3");
    taken("call_3", null);
    await pass(10);
    expect([session.reserved, desk.size]).toEqual([1, 0]);
  });

  it("to a broker that asks this one alone say also that there is none", async () => {
    const { desk, askAlone } = stage(1);
    desk.start();
    expect((await askAlone("call_1"))?.session.runnerId).toBe("runner_1");
    expect(await askAlone("call_2")).toBeNull();
  });

  it("are worth nothing after half a lease: a grant that was in a buffer for so long is never sent (G1)", async () => {
    const { desk, offer, pass } = stage(1);
    const { offerId = "" } = (await offer("call_1")) ?? {};
    await pass(7_600);
    expect([desk.take(offerId, "call_1"), desk.size]).toEqual([undefined, 0]);
    expect(desk.take("offer_never_made", "call_1")).toBeUndefined();
  });

  it("go on while one session of a handler is left, however often another is added and removed", async () => {
    const { desk, offer, session, registry } = stage(1);
    const other: Session = { ...session, ref: { ...session.ref, runnerId: "runner_2" }, grants: new SessionGrants(() => undefined) };
    desk.sessionRemoved(other);
    desk.sessionAdded(other);
    desk.sessionAdded(other);
    desk.sessionRemoved(other);
    desk.sessionRemoved(other);
    expect(await offer("call_1")).toBeDefined();
    desk.sessionRemoved(session);
    registry.remove(session);
    expect(await offer("call_2")).toBeUndefined();
  });
});
