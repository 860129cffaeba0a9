import { afterEach, describe, expect, it } from "vitest";
import { silentLog } from "../app/logs.js";
import { decodeEntry, encodeEntry } from "../domain/call/entry-codec.js";
import type { Registry } from "../domain/ports/bus.js";
import { LedgerError } from "../domain/ports/ledger.js";
import { createMemoryLedger } from "../ledger/memory/memory-ledger.js";
import { rendezvous } from "./take-over.js";
import { AGENT, type BrokerParts, connectRunner, createSite, recordedLog, type Site, startBroker, until } from "./wire.test.kit.js";

const stops: (() => Promise<unknown> | unknown)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) {
    await stop();
  }
});

async function broker(site: Site, figures = {}, parts: BrokerParts = {}) {
  const started = await startBroker(site, figures, parts);
  stops.push(() => started.stop());
  return started;
}

const CALL = { toolset: "shop", tool: "echo", arguments: { x: 1 } };

function driversOf(site: Site): string[] {
  return [...site.store.entriesOfCall.values()].map((entries) => {
    const last = entries.map(decodeEntry).findLast((entry) => entry.kind === "adopted" || entry.kind === "accepted");
    return last !== undefined && "driver" in last ? last.driver : "";
  });
}

describe("calls of a broker that died", () => {
  it("are shared out among those that live, and each is driven by one of them", async () => {
    const site = createSite(silentLog);
    const dead = await startBroker(site);
    const [b, c] = [await broker(site), await broker(site)];
    for (let index = 0; index < 40; index += 1) {
      await dead.wire.calls.create(AGENT, CALL, {});
    }
    dead.kill();
    await until("the take-over", () => driversOf(site).every((driver) => driver === b.id || driver === c.id));
    expect(new Set(driversOf(site))).toEqual(new Set([b.id, c.id]));
  });

  it("are taken by whoever finds them when the broker that they fell to does not take them", async () => {
    const site = createSite(silentLog);
    const dead = await startBroker(site);
    const b = await broker(site);
    // It is seen to live, and does nothing.
    const records: Registry = await site.hub.connect().registry("brokers");
    const idle = "broker_idle";
    const beating = setInterval(() => void records.put(idle, "{}"), 30);
    stops.push(() => clearInterval(beating));
    const calls: string[] = [];
    for (let index = 0; index < 20; index += 1) {
      calls.push((await dead.wire.calls.create(AGENT, CALL, {})).id);
    }
    expect(calls.some((id) => rendezvous([b.id, idle].sort(), id) === idle)).toBe(true);
    dead.kill();
    await until("the second sweep", () => driversOf(site).every((driver) => driver === b.id));
  });

  it("are left to a broker that answers, though its heartbeat was never seen", async () => {
    const site = createSite(silentLog);
    const a = await broker(site);
    const call = await a.wire.calls.create(AGENT, CALL, {});
    // A broker that starts before the other one's record reaches it.
    const b = await broker(
      site,
      {},
      {
        bus: (bus) => ({
          ...bus,
          async registry(name) {
            const registry = await bus.registry(name);
            return name !== "brokers"
              ? registry
              : {
                  ...registry,
                  watch: (listener) =>
                    registry.watch((change) => {
                      const key = change.kind === "put" ? change.record.key : change.key;
                      if (key !== a.id) {
                        listener(change);
                      }
                    }),
                };
          },
        }),
      },
    );
    expect((await b.wire.calls.get(AGENT, call.id, {})).state).toBe("queued");
    expect(driversOf(site)).toEqual([a.id]);
  });

  it("are taken over though one of them cannot be read", async () => {
    const site = createSite(silentLog);
    const dead = await startBroker(site);
    const { lines, log } = recordedLog();
    const b = await broker({ ...site, log });
    const ids: string[] = [];
    for (let index = 0; index < 5; index += 1) {
      ids.push((await dead.wire.calls.create(AGENT, CALL, {})).id);
    }
    const poisoned = ids[0] ?? "";
    const last = site.store.entriesOfCall.get(poisoned)?.at(-1)?.version ?? 0;
    const newer = { entryId: "entry_of_a_newer_broker", data: '{"f":99,"kind":"adopted"}', mark: "none" } as const;
    await createMemoryLedger({ store: site.store }).append(poisoned, last, newer);
    dead.kill();
    await until("the others", () => ids.slice(1).every((id) => site.store.entriesOfCall.get(id)?.length === 2));
    await until("the end of the sweep", () => lines.some(({ event }) => event === "take_over_swept"));
    expect(lines.filter(({ event }) => event === "take_over_failed").map(({ fields }) => fields["call_id"])).toEqual([poisoned]);
    expect(b.wire.inspect()["drivers"]).toBe(4);
  });

  it("are nothing to complain about for a broker that stops in the middle of a sweep", async () => {
    const site = createSite(silentLog);
    const dead = await startBroker(site);
    const { lines, log } = recordedLog();
    let swept = (): void => {};
    const sweeping = new Promise<void>((resolve) => {
      swept = resolve;
    });
    let close = (): void => {};
    const closed = new Promise<void>((resolve) => {
      close = resolve;
    });
    let isHeld = false;
    const stopping = await startBroker(
      { ...site, log },
      {},
      {
        ledger: (ledger) => {
          const openCalls = ledger.openCalls.bind(ledger);
          return Object.assign(ledger, {
            async *openCalls() {
              if (isHeld) {
                swept();
                await closed;
                throw new LedgerError("closed", "the ledger is closed");
              }
              yield* openCalls();
            },
          });
        },
      },
    );
    isHeld = true;
    dead.kill();
    await sweeping;
    const stopped = stopping.stop();
    close();
    await stopped;
    expect(lines.filter(({ event }) => event === "take_over_failed")).toEqual([]);
  });

  it("leave no records of its sessions behind", async () => {
    const site = createSite(silentLog);
    const dead = await startBroker(site);
    await broker(site);
    await connectRunner(dead.wire, { runnerId: "one" });
    await connectRunner(dead.wire, { runnerId: "two" });
    const records = await site.hub.connect().registry("sessions");
    expect((await records.list()).length).toBe(2);
    dead.kill();
    await until("the records to go", async () => (await records.list()).length === 0);
  });
});

describe("a broker that was thought dead", () => {
  it("gives up the calls that others took over, as soon as it is told, and goes on with those that are its own", async () => {
    const site = createSite(silentLog);
    const a = await broker(site);
    const taken = await a.wire.calls.create(AGENT, { ...CALL, tool: "asked" }, {});
    const own = await a.wire.calls.create(AGENT, { ...CALL, tool: "asked" }, {});
    const b = await broker(site, { goneAfterMs: 60_000 });
    expect(a.wire.inspect()["drivers"]).toBe(2);
    const records = await site.hub.connect().registry("brokers");
    const last = site.store.entriesOfCall.get(taken.id)?.at(-1)?.version ?? 0;
    const entryId = "entry_of_another";
    const data = encodeEntry({ kind: "adopted", at: 0, driver: b.id, from: a.id });
    await createMemoryLedger({ store: site.store }).append(taken.id, last, { entryId, data, mark: "none" });
    await records.delete(a.id);
    await until("the hand-over", () => a.wire.inspect()["drivers"] === 1);
    await a.wire.calls.confirm(AGENT, own.id, { decision: "allow" });
    expect((await a.wire.calls.get(AGENT, own.id, {})).state).toBe("queued");
    expect(driversOf(site)).toEqual([b.id, a.id]);
  });
});
