import { createMemoryChannelPair, Hello, type RunnerFrame } from "@toolrunner/proto";
import { describe, expect, it } from "vitest";
import { silentLog } from "../app/logs.js";
import { createLocalBusHub } from "../bus/local/local-bus.js";
import { BusError, type Registry } from "../domain/ports/bus.js";
import type { CatalogOperations } from "../domain/ports/catalog.js";
import { Greetings } from "./session-greeting.js";

const KEY = "default.shop.runner_1";

async function stage(wrap: (registry: Registry) => Registry = (registry) => registry) {
  const bus = createLocalBusHub().connect();
  const registry = await bus.registry("sessions");
  const state = {
    unavailable: undefined as { close: 4501 | 4503; reason: string } | undefined,
    present: undefined as { sessionEpoch: number; journalId: string } | undefined,
  };
  const greetings = new Greetings({
    brokerId: "broker_a",
    log: silentLog,
    authenticator: {
      agent: async () => undefined,
      runner: async () => ({ kind: "runner", keyId: "key_1", application: "default", binding: "*", mayNameSubject: true }),
    },
    catalog: {
      getBinding: async (_application: string, id: string) => ({ id, name: id, kind: "backend", created_at: "" }),
    } as unknown as CatalogOperations,
    registersBindings: false,
    records: () => wrap(registry),
    unavailable: () => state.unavailable,
    present: () => state.present,
  });
  const pair = createMemoryChannelPair();
  const hello: RunnerFrame = {
    frame: {
      $case: "hello",
      value: Hello.create({ protocolVersions: [1], runnerId: "runner_1", binding: "shop", credential: "key", journalId: "journal_1" }),
    },
  };
  const greet = (gone = () => false) =>
    greetings.greet(pair.broker, { principal: undefined, origin: undefined, remoteAddress: "test" }, hello, gone);
  return { greetings, registry, state, pair, greet };
}

/** A registry whose puts wait until they are let go. */
function held() {
  let go: () => void = () => undefined;
  const gate = new Promise<void>((resolve) => {
    go = resolve;
  });
  const wrap = (registry: Registry): Registry => ({
    ...registry,
    async put(key, value) {
      const revision = await registry.put(key, value);
      await gate;
      return revision;
    },
  });
  return { go: () => go(), wrap };
}

describe("the greeting of a runner (B2)", () => {
  it("gives the session the epoch of its record", async () => {
    const { greet, registry } = await stage();
    const greeted = await greet();
    expect(greeted?.ref).toMatchObject({ brokerId: "broker_a", runnerId: "runner_1", sessionEpoch: (await registry.get(KEY))?.revision });
  });

  it("opens no session that was superseded elsewhere before it came to be", async () => {
    const { go, wrap } = held();
    const { greet, greetings, pair } = await stage(wrap);
    const greeting = greet();
    await new Promise((resolve) => setImmediate(resolve));
    greetings.sawEpoch("default.shop.runner_2", { sessionEpoch: 2_000, journalId: "journal_1" });
    greetings.sawEpoch(KEY, { sessionEpoch: 1_000, journalId: "journal_2" });
    greetings.sawEpoch(KEY, { sessionEpoch: 999, journalId: "journal_1" });
    go();
    expect(await greeting).toBeUndefined();
    expect((await pair.broker.closed).code).toBe(4409);
  });

  it("opens no session that is older than the one that is there by now", async () => {
    const { go, wrap } = held();
    const { greet, state, pair } = await stage(wrap);
    const greeting = greet();
    state.present = { sessionEpoch: 1_000, journalId: "journal_2" };
    go();
    expect(await greeting).toBeUndefined();
    expect((await pair.broker.closed).code).toBe(4409);
  });

  it("lets a runner dial again that an earlier hello of its own overtook, here or elsewhere", async () => {
    const { go, wrap } = held();
    const here = await stage(wrap);
    const there = await stage(wrap);
    const greetings = [here.greet(), there.greet()];
    await new Promise((resolve) => setImmediate(resolve));
    here.state.present = { sessionEpoch: 1_000, journalId: "journal_1" };
    there.greetings.sawEpoch(KEY, { sessionEpoch: 1_000, journalId: "journal_1" });
    go();
    expect(await Promise.all(greetings)).toEqual([undefined, undefined]);
    expect([(await here.pair.broker.closed).code, (await there.pair.broker.closed).code]).toEqual([4500, 4500]);
  });

  it("opens no session for a key that was revoked meanwhile", async () => {
    const { go, wrap } = held();
    const { greet, greetings, pair } = await stage(wrap);
    const greeting = greet();
    await new Promise((resolve) => setImmediate(resolve));
    greetings.keyRevoked("key_1");
    go();
    expect(await greeting).toBeUndefined();
    expect((await pair.broker.closed).code).toBe(4401);
  });

  it("supersedes nobody for a connection that is gone", async () => {
    const { greet, registry } = await stage();
    expect(await greet(() => true)).toBeUndefined();
    expect(await registry.get(KEY)).toBeUndefined();
  });

  it("lets the runner dial again when the other brokers cannot be told", async () => {
    const { greet, pair } = await stage((registry) => ({
      ...registry,
      put: () => Promise.reject(new BusError("unreachable", "no answer")),
    }));
    expect(await greet()).toBeUndefined();
    expect((await pair.broker.closed).code).toBe(4500);
  });

  it("opens no session on a broker that began to stop, or lost its ledger, while it checked the hello", async () => {
    const { go, wrap } = held();
    const { greet, state, pair } = await stage(wrap);
    const greeting = greet();
    state.unavailable = { close: 4501, reason: "stopping" };
    go();
    expect(await greeting).toBeUndefined();
    expect((await pair.broker.closed).code).toBe(4501);
  });
});
