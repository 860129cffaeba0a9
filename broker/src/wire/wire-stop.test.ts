import { createMemoryChannelPair, Hello } from "@toolrunner/proto";
import { describe, expect, it } from "vitest";
import { silentLog } from "../app/logs.js";
import type { Bus, Registry } from "../domain/ports/bus.js";
import type { Ledger } from "../domain/ports/ledger.js";
import { AGENT, connectRunner, createSite, createTestBroker, startBroker, until } from "./wire.test.kit.js";
import { withLedger } from "./with-ledger.test.kit.js";

const CALL = { toolset: "shop", tool: "echo", arguments: { x: 1 } };
const never = new Promise<never>(() => undefined);

/** A ledger of which some operations never end. */
function stuck(inner: Ledger, isStuck: (operation: "append" | "read") => boolean): Ledger {
  return withLedger(inner, {
    append: (callId, expected, entry) => (isStuck("append") ? never : inner.append(callId, expected, entry)),
    async *read(callId, from) {
      await (isStuck("read") ? never : undefined);
      yield* inner.read(callId, from);
    },
  });
}

/** A bus whose records are never written from now on. */
function deadRecords(bus: Bus, isDead: () => boolean): Bus {
  return {
    ...bus,
    async registry(name): Promise<Registry> {
      const registry = await bus.registry(name);
      return {
        ...registry,
        put: (key, value) => (isDead() ? never : registry.put(key, value)),
        delete: (key, expected) => (isDead() ? never : registry.delete(key, expected)),
      };
    },
  };
}

async function timed(work: Promise<unknown>): Promise<number> {
  const startedAt = performance.now();
  await work;
  return performance.now() - startedAt;
}

const outcome = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => "answered",
    (error: { readonly code?: string }) => error.code ?? "failed",
  );

describe("a broker that stops", () => {
  it("while the ledger keeps a creation and agents wait, answers them all and is over in two seconds", async () => {
    const site = createSite(silentLog);
    let away = false;
    const one = await startBroker(site, { ledgerAnswerMs: 60_000 }, { ledger: (inner) => stuck(inner, () => away) });
    const call = await one.wire.calls.create(AGENT, CALL, {});
    away = true;
    const asked = [
      outcome(one.wire.calls.create(AGENT, CALL, {})),
      outcome(one.wire.calls.cancel(AGENT, call.id, {})),
      outcome(one.wire.calls.get(AGENT, call.id, { wait_seconds: 60 })),
    ];
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(await timed(one.stop())).toBeLessThan(2_000);
    expect(await Promise.all(asked)).toEqual(["ledger_away", "ledger_away", "answered"]);
  });

  it("while it takes calls over from one that died, and the ledger does not answer, is over in two seconds", async () => {
    const site = createSite(silentLog);
    const a = await startBroker(site);
    for (let index = 0; index < 5; index += 1) {
      await a.wire.calls.create(AGENT, CALL, {});
    }
    let away = false;
    const b = await startBroker(site, {}, { ledger: (inner) => stuck(inner, (operation) => away && operation === "append") });
    away = true;
    a.kill();
    await new Promise((resolve) => setTimeout(resolve, 400));
    expect(await timed(b.stop())).toBeLessThan(2_000);
  });

  it("while the bus keeps its records, runners connect and others do not answer the close, is over in two seconds", async () => {
    const site = createSite(silentLog);
    let dead = false;
    const one = await startBroker(site, {}, { bus: (bus) => deadRecords(bus, () => dead) });
    await connectRunner(one.wire);
    dead = true;
    // One whose hello is being greeted, and one that never says hello.
    for (const says of [true, false]) {
      const { broker, runner } = createMemoryChannelPair();
      void one.wire.sessions.serve(broker, { principal: undefined, origin: undefined, remoteAddress: "memory" });
      if (says) {
        const value = Hello.create({
          protocolVersions: [1],
          runnerId: "other",
          binding: "shop",
          credential: "key",
          journalId: "j",
          slots: 1,
        });
        runner.send({ frame: { $case: "hello", value } });
      }
    }
    // And one whose closing the other side never answers.
    const frozen = createMemoryChannelPair();
    const deaf = { ...frozen.broker, closed: never, close: () => undefined, [Symbol.asyncIterator]: () => ({ next: () => never }) };
    void one.wire.sessions.serve(deaf, { principal: undefined, origin: undefined, remoteAddress: "memory" });
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(await timed(one.stop())).toBeLessThan(2_000);
    expect(one.wire.inspect()["sessions"]).toBe(0);
  });

  it("drains for as long as runners still run something, and not longer", async () => {
    const site = createSite(silentLog);
    const one = await startBroker(site);
    const runner = await connectRunner(one.wire);
    const idle = await startBroker(site);
    await connectRunner(idle.wire, { runnerId: "idle", slots: 0 });
    const call = await one.wire.calls.create(AGENT, CALL, {});
    const grant = await runner.next();
    expect(await timed(idle.wire.stop(5_000))).toBeLessThan(2_000);
    const stopped = timed(one.wire.stop(5_000));
    await until("the drain", () => runner.frames.includes("drain"));
    runner.succeed(grant);
    expect(await stopped).toBeLessThan(2_500);
    const last = site.store.entriesOfCall.get(call.id);
    expect(last?.length).toBe(2);
  });

  it("twice, or before it started, stops once and rejects nothing", async () => {
    const site = createSite(silentLog);
    const one = await startBroker(site);
    await Promise.all([one.wire.stop(0), one.wire.stop(10_000), one.stop()]);
    await one.wire.stop(0);
  });

  it("while it starts, and its first sweep waits for the ledger, does not go on starting and is seen no more", async () => {
    const site = createSite(silentLog);
    const a = await startBroker(site);
    await a.wire.calls.create(AGENT, CALL, {});
    a.kill();
    const { wire, start } = createTestBroker(site, {}, { ledger: (inner) => stuck(inner, (operation) => operation === "read") });
    const starting = outcome(start());
    const records = await site.hub.connect().registry("brokers");
    const seen = async () => (await records.list()).length;
    const before = await until("its heartbeat", async () => ((await seen()) > 1 ? seen() : undefined));
    expect(await timed(wire.stop(0))).toBeLessThan(2_000);
    expect(await seen()).toBe(before - 1);
    await new Promise((resolve) => setTimeout(resolve, 150));
    expect(await seen()).toBe(before - 1);
    expect(await starting).toBe("failed");
  });
});
