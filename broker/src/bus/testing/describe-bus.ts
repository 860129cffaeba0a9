/** What every bus does, whatever carries it. An implementation passes this suite unchanged. */
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { BUS_MESSAGE_BYTES_MAX, type Bus, BusError } from "../../domain/ports/bus.js";
import { describeRegistry } from "./describe-registry.js";
import { eventually } from "./eventually.js";

/** Brokers that share one bus; a new one for each test, so that nothing is left from the last. */
export interface BusWorld {
  /** One more broker's bus. */
  connect(): Promise<Bus>;
  /** Ends all buses and what carries them. */
  close(): Promise<void>;
}

export function describeBus(name: string, createWorld: () => Promise<BusWorld>): void {
  describe(`bus: ${name}`, () => {
    let world: BusWorld;
    let one: Bus;
    let two: Bus;

    beforeEach(async () => {
      world = await createWorld();
      one = await world.connect();
      two = await world.connect();
    });
    afterEach(() => world.close());

    /** Listens on `bus` and waits until the listener is known everywhere. */
    async function collect(bus: Bus, subject: string): Promise<string[]> {
      const heard: string[] = [];
      bus.subscribe(subject, (payload, from) => heard.push(`${from}=${payload}`));
      await bus.check();
      return heard;
    }

    async function code(task: Promise<unknown>): Promise<string> {
      const error: unknown = await task.then(
        () => undefined,
        (reason: unknown) => reason,
      );
      return error instanceof BusError ? error.code : `no BusError: ${String(error)}`;
    }

    it("carries messages to all who listen to the subject, in order, also to the sender's own listeners", async () => {
      const own = await collect(one, "offers.a");
      const other = await collect(two, "offers.a");
      for (let index = 0; index < 100; index += 1) one.publish("offers.a", `${index}`);
      const expected = Array.from({ length: 100 }, (_, index) => `offers.a=${index}`);
      await eventually("100 messages at both", () => own.length >= 100 && other.length >= 100);
      expect(own).toEqual(expected);
      expect(other).toEqual(expected);
    });

    it("delivers nothing inside the publishing call", async () => {
      const heard = await collect(one, "now");
      one.publish("now", "x");
      expect(heard).toEqual([]);
      await eventually("the message", () => heard.length === 1);
    });

    it("matches * with one last token and > with one or more, and nothing else", async () => {
      const star = await collect(two, "a.b.*");
      const tail = await collect(two, "a.>");
      const exact = await collect(two, "a.b");
      const done = await collect(two, "done");
      for (const subject of ["a", "a.b", "a.b.c", "a.b.c.d", "x.b.c", "ab.c"]) one.publish(subject, "m");
      one.publish("done", "m");
      await eventually("the last message", () => done.length === 1);
      expect(star).toEqual(["a.b.c=m"]);
      expect(tail).toEqual(["a.b=m", "a.b.c=m", "a.b.c.d=m"]);
      expect(exact).toEqual(["a.b=m"]);
    });

    it("stops delivering when the subscription ends, while others go on", async () => {
      const kept = await collect(two, "s");
      const heard: string[] = [];
      const subscription = two.subscribe("s", (payload) => heard.push(payload));
      await two.check();
      one.publish("s", "1");
      await eventually("the first message", () => heard.length === 1 && kept.length === 1);
      subscription.unsubscribe();
      subscription.unsubscribe();
      await two.check();
      one.publish("s", "2");
      await eventually("the second message", () => kept.length === 2);
      expect(heard).toEqual(["1"]);
    });

    it("carries text of every kind, up to the limit, and refuses more with too_large", async () => {
      const heard: string[] = [];
      two.subscribe("big", (payload) => heard.push(payload));
      await two.check();
      const odd = "\u0000 \r\n ü € 😀 \ud7ff";
      const large = "é".repeat(BUS_MESSAGE_BYTES_MAX / 2);
      for (const payload of ["", odd, large]) one.publish("big", payload);
      await eventually("three messages", () => heard.length === 3);
      expect(heard[0]).toBe("");
      expect(heard[1]).toBe(odd);
      expect(heard[2] === large).toBe(true);
      expect(() => one.publish("big", `${large}x`)).toThrow(BusError);
      expect(await code(one.request("big", `${large}x`, { timeoutMs: 100 }))).toBe("too_large");
      expect(await code(one.requestMany("big", `${large}x`, { timeoutMs: 100, max: 2 }))).toBe("too_large");
    });

    it.each(["", ".", "a.", ".a", "a..b", "a b", "a.*", "a.>", "ü", "a\n"])("refuses to publish to the subject %j", async (subject) => {
      expect(() => one.publish(subject, "")).toThrow(TypeError);
      await expect(one.request(subject, "", { timeoutMs: 10 })).rejects.toThrow(TypeError);
    });

    it.each(["", "*.a", "a.*.b", ">.a", "a*", "a.>.b"])("refuses to listen to the subject %j", (subject) => {
      expect(() => one.subscribe(subject, () => undefined)).toThrow(TypeError);
      expect(() => one.respond(subject, async () => undefined)).toThrow(TypeError);
    });

    it("takes subjects and keys of 1,024 characters and refuses longer ones", async () => {
      const longest = "x".repeat(1_024);
      const heard = await collect(two, longest);
      one.publish(longest, "m");
      await eventually("the message", () => heard.length === 1);
      expect(() => one.publish(`${longest}x`, "")).toThrow(TypeError);
      const registry = await one.registry("brokers");
      await registry.put(longest, "v");
      expect((await registry.get(longest))?.value).toBe("v");
      await expect(registry.put(`${longest}x`, "v")).rejects.toThrow(TypeError);
    });

    describe("requests", () => {
      it("get the answer of the responder, which sees payload and subject", async () => {
        two.respond("svc.*", async (payload, subject) => `${subject} ${payload}`);
        await two.check();
        expect(await one.request("svc.echo", "hi", { timeoutMs: 5_000 })).toBe("svc.echo hi");
        expect(await two.request("svc.own", "", { timeoutMs: 5_000 })).toBe("svc.own ");
      });

      it("of which many are under way at once each get their own answer", async () => {
        two.respond("svc", async (payload) => payload);
        await two.check();
        const sent = Array.from({ length: 500 }, (_, index) => `${index}`);
        expect(await Promise.all(sent.map((payload) => one.request("svc", payload, { timeoutMs: 10_000 })))).toEqual(sent);
      });

      it("fail at once with no_responder when nobody listens", async () => {
        const startedAt = performance.now();
        expect(await code(one.request("nobody", "", { timeoutMs: 10_000 }))).toBe("no_responder");
        expect(await one.requestMany("nobody", "", { timeoutMs: 10_000, max: 3 })).toEqual([]);
        expect(performance.now() - startedAt).toBeLessThan(5_000);
      });

      it("fail with no_responder again once the responder is gone", async () => {
        const responder = two.respond("svc", async () => "x");
        await two.check();
        expect(await one.request("svc", "", { timeoutMs: 5_000 })).toBe("x");
        responder.unsubscribe();
        await two.check();
        expect(await code(one.request("svc", "", { timeoutMs: 5_000 }))).toBe("no_responder");
      });

      it("fail with timeout when those who listen do not answer", async () => {
        two.respond("silent", async () => undefined);
        const heard = await collect(two, "deaf");
        expect(await code(one.request("silent", "", { timeoutMs: 50 }))).toBe("timeout");
        expect(await code(one.request("deaf", "r", { timeoutMs: 50 }))).toBe("timeout");
        expect(heard).toEqual(["deaf=r"]);
      });

      it("are answered by another responder when one declines or fails", async () => {
        one.respond("svc", async () => undefined);
        two.respond("svc", async () => {
          throw new Error("broken on purpose");
        });
        two.respond("svc", async () => "third");
        await Promise.all([one.check(), two.check()]);
        expect(await one.request("svc", "", { timeoutMs: 5_000 })).toBe("third");
      });

      it("do not wake responders for plain messages", async () => {
        let woken = 0;
        two.respond("svc", async () => {
          woken += 1;
          return "x";
        });
        const heard = await collect(two, "svc");
        one.publish("svc", "plain");
        await eventually("the plain message", () => heard.length === 1);
        await one.request("svc", "", { timeoutMs: 5_000 });
        expect(woken).toBe(1);
      });

      it("to many collect answers until the maximum, without waiting for the rest", async () => {
        for (const bus of [one, two]) {
          for (let index = 0; index < 3; index += 1) bus.respond("many", async () => `a${index}`);
        }
        await Promise.all([one.check(), two.check()]);
        const startedAt = performance.now();
        const answers = await one.requestMany("many", "", { timeoutMs: 10_000, max: 4 });
        expect(performance.now() - startedAt).toBeLessThan(5_000);
        expect(answers).toHaveLength(4);
        expect(await one.requestMany("many", "", { timeoutMs: 200, max: 100 })).toHaveLength(6);
        expect(await one.requestMany("many", "", { timeoutMs: 200, max: 0 })).toEqual([]);
      });

      it("to many end at the time-out with the answers that came", async () => {
        one.respond("some", async () => "quick");
        two.respond("some", () => new Promise(() => undefined));
        await Promise.all([one.check(), two.check()]);
        expect(await one.requestMany("some", "", { timeoutMs: 200, max: 2 })).toEqual(["quick"]);
      });
    });

    describe("closing", () => {
      it("ends listeners and responders, refuses what comes after, and leaves the others alone", async () => {
        const heard = await collect(two, "s");
        two.respond("svc", async () => "x");
        const other = await collect(one, "s");
        const states: string[] = [];
        two.onState((state) => states.push(state));
        await two.close();
        await two.close();
        one.publish("s", "1");
        await eventually("the message at the other", () => other.length === 1);
        expect(heard).toEqual([]);
        expect(states).toEqual(["up", "down"]);
        expect(await code(one.request("svc", "", { timeoutMs: 5_000 }))).toBe("no_responder");
        expect(await code(two.request("svc", "", { timeoutMs: 5_000 }))).toBe("closed");
        expect(await code(two.check())).toBe("unreachable");
        expect(await code(two.registry("brokers"))).toBe("closed");
        expect(() => two.subscribe("s", () => undefined)).toThrow(BusError);
        two.publish("s", "goes nowhere");
      });

      it("ends watches", async () => {
        const registry = await two.registry("brokers");
        const seen: string[] = [];
        await registry.watch((change) => seen.push(change.kind));
        const other = await one.registry("brokers");
        const others: string[] = [];
        await other.watch((change) => others.push(change.kind));
        await two.close();
        await other.put("k", "v");
        await eventually("the change at the other", () => others.length === 1);
        expect(seen).toEqual([]);
        expect(await code(registry.put("k", "v"))).toBe("closed");
      });
    });

    describeRegistry(() => ({ one, two }));
  });
}
