/** The bus while servers die, freeze and forget, and while single connections are cut. */
import { type Bus, BusError, connectNats, type Registry } from "@toolrunner/broker/internal";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { eventually, type NatsServer, startNatsServer, startTcpProxy, type TcpProxy } from "../kit/index.js";
import { askJetStream, type OpenBus, openBus, quiet } from "./bus-kit.js";

/** What a watcher believes: values by key. */
async function follow(registry: Registry): Promise<{ values: Map<string, string>; revisions: number[] }> {
  const values = new Map<string, string>();
  const revisions: number[] = [];
  await registry.watch((change) => {
    revisions.push(change.kind === "put" ? change.record.revision : change.revision);
    if (change.kind === "put") values.set(change.record.key, change.record.value);
    else values.delete(change.key);
  });
  return { values, revisions };
}

function expectRising(revisions: readonly number[]): void {
  expect(revisions).toEqual([...new Set(revisions)].sort((left, right) => left - right));
}

/** Both versions take a minute; the newer one stands for both in `npm test`. */
const VERSIONS = process.env.TOOLRUNNER_LONG === "1" ? (["2.9", "2.10"] as const) : (["2.10"] as const);

describe.each(VERSIONS)("bus on nats-server %s", { timeout: 60_000 }, (version) => {
  let server: NatsServer;
  const open: OpenBus[] = [];
  let proxy: TcpProxy | undefined;

  beforeEach(async () => {
    server = await startNatsServer({ version });
  });
  afterEach(async () => {
    if (server.running) server.resume();
    await Promise.all(open.splice(0).map((one) => one.close()));
    await proxy?.close();
    proxy = undefined;
    await server.dispose();
  });

  async function connected(url = server.url): Promise<Bus> {
    const one = await openBus(url);
    open.push(one);
    return one.bus;
  }

  async function upAgain(bus: Bus): Promise<void> {
    await eventually(
      "the bus to be up",
      () =>
        bus.check().then(
          () => true,
          () => false,
        ),
      15_000,
    );
  }

  it("a watch sees, once, what others changed while its own connection was cut, deletions included", async () => {
    proxy = await startTcpProxy(server.port);
    const cut = await (await connected(`nats://127.0.0.1:${proxy.port}`)).registry("sessions");
    const other = await (await connected()).registry("sessions");
    for (const key of ["changed", "deleted", "kept", "recreated"]) await other.put(key, "old");
    const view = await follow(cut);
    proxy.hold(true);
    proxy.cut();
    await other.put("changed", "between");
    await other.put("changed", "new");
    await other.put("added", "new");
    await other.delete("deleted");
    await other.delete("recreated");
    await other.put("recreated", "new");
    proxy.hold(false);
    const truth = new Map((await other.list()).map(({ key, value }) => [key, value]));
    await eventually("the newest state of every key", () => view.values.size === 4 && view.values.get("recreated") === "new", 5_000);
    expect(view.values).toEqual(truth);
    expectRising(view.revisions);
  });

  it("watches, lists and revisions go on after the server was killed and started again", async () => {
    const [one, two] = [await connected(), await connected()];
    const registry = await one.registry("sessions");
    const view = await follow(registry);
    const before = await registry.put("k", "1");
    for (let round = 0; round < 2; round += 1) {
      await server.kill9();
      await server.restart();
      await Promise.all([upAgain(one), upAgain(two)]);
      const after = await (await two.registry("sessions")).put("k", `after ${round}`);
      expect(after).toBeGreaterThan(before);
      await eventually("the change of the other broker", () => view.values.get("k") === `after ${round}`, 5_000);
    }
    expectRising(view.revisions);
    expect((await registry.list()).map(({ value }) => value)).toEqual(["after 1"]);
  });

  it("a watch whose consumer the server has lost goes on within seconds", async () => {
    const registry = await (await connected()).registry("sessions");
    const view = await follow(registry);
    const connection = await connectNats({ url: server.url, name: "test", log: quiet });
    const { consumers } = await askJetStream(connection, "CONSUMER.NAMES.KV_tr_sessions", {});
    expect(consumers).toHaveLength(1);
    await askJetStream(connection, `CONSUMER.DELETE.KV_tr_sessions.${String(consumers)}`, {});
    await connection.close();
    await registry.put("k", "missed");
    await eventually("the change that the lost consumer did not deliver", () => view.values.get("k") === "missed", 8_000);
    expectRising(view.revisions);
  });

  it("tells that it went down and came up, drops what is published meanwhile, and refuses requests at once", async () => {
    const bus = await connected();
    const states: string[] = [];
    bus.onState((state) => states.push(state));
    const heard: string[] = [];
    bus.subscribe("s", (payload) => heard.push(payload));
    bus.respond("svc", async (payload) => payload);
    await server.kill9();
    await eventually("the bus to notice", () => states.at(-1) === "down");
    bus.publish("s", "lost");
    const startedAt = performance.now();
    await expect(bus.request("svc", "", { timeoutMs: 10_000 })).rejects.toMatchObject({ code: "unreachable" });
    await expect(bus.requestMany("svc", "", { timeoutMs: 10_000, max: 2 })).rejects.toMatchObject({ code: "unreachable" });
    await expect(bus.check()).rejects.toMatchObject({ code: "unreachable" });
    expect(performance.now() - startedAt).toBeLessThan(2_000);
    await server.restart();
    await upAgain(bus);
    bus.publish("s", "kept");
    expect(await bus.request("svc", "again", { timeoutMs: 5_000 })).toBe("again");
    await eventually("the message after the outage", () => heard.length > 0);
    expect(heard).toEqual(["kept"]);
    expect(states).toEqual(["up", "down", "up"]);
  });

  it("L2: a write that a short outage interrupts is stored once, and one that a long outage outlasts is unreachable", async () => {
    const registry = await (await connected()).registry("sessions");
    const first = await registry.put("k", "1");
    await server.kill9();
    const pending = registry.update("k", "2", first);
    await server.restart();
    const second = await pending;
    expect(second).toBe(first + 1);
    expect(await registry.get("k")).toEqual({ key: "k", value: "2", revision: second });

    await server.kill9();
    await expect(registry.put("k", "3")).rejects.toMatchObject({ code: "unreachable" });
    await expect(registry.get("k")).rejects.toMatchObject({ code: "unreachable" });
  });

  it("notices a server that is frozen, and goes on when it thaws", async () => {
    const bus = await connected();
    const view = await follow(await bus.registry("sessions"));
    server.pause();
    const fails = (): Promise<boolean> =>
      bus.check().then(
        () => false,
        (error: unknown) => error instanceof BusError && error.code === "unreachable",
      );
    await eventually("the bus to notice", fails);
    server.resume();
    await upAgain(bus);
    await (await bus.registry("sessions")).put("k", "after");
    await eventually("the change after the thaw", () => view.values.get("k") === "after");
    expectRising(view.revisions);
  });

  it("has at most one winner of each race while the server is killed between them", async () => {
    const registries = await Promise.all([connected(), connected(), connected()].map(async (bus) => (await bus).registry("sessions")));
    let revision = 0;
    for (let round = 0; round < 4; round += 1) {
      const race = Promise.all(
        Array.from({ length: 12 }, async (_, writer) => {
          const outcome = await registries[writer % 3]?.update("raced", `${round}/${writer}`, revision);
          return outcome === undefined ? [] : [{ outcome, value: `${round}/${writer}` }];
        }),
      );
      if (round % 2 === 1) {
        await server.kill9();
        await server.restart();
      }
      const winners = (await race).flat();
      expect(winners).toHaveLength(1);
      expect(await registries[0]?.get("raced")).toEqual({ key: "raced", value: winners[0]?.value, revision: winners[0]?.outcome });
      revision = winners[0]?.outcome ?? 0;
    }
  });
});
