/** Replicated registries on three servers, while leaders step down and die. */
import type { Registry } from "@toolrunner/broker/internal";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { eventually, type NatsCluster, startNatsCluster } from "../kit/index.js";
import { type OpenBus, openBus } from "./bus-kit.js";

const isLong = process.env.TOOLRUNNER_LONG === "1";
const title = "bus on three nats-servers 2.10 with replicas 3";

describe.skipIf(!isLong)(isLong ? title : `${title} [half a minute of elections: npm run test:long]`, { timeout: 120_000 }, () => {
  const stream = "KV_tr_sessions";
  let cluster: NatsCluster;
  const open: OpenBus[] = [];

  beforeAll(async () => {
    cluster = await startNatsCluster();
  }, 120_000);
  afterEach(async () => {
    await Promise.all(open.splice(0).map((one) => one.close()));
    await cluster.heal();
  }, 60_000);
  afterAll(() => cluster.dispose(), 60_000);

  /** One registry by each server. */
  async function openAll(): Promise<Registry[]> {
    const registries: Registry[] = [];
    for (const url of cluster.urls) {
      const one = await openBus([url, ...cluster.urls].join(","), { replicas: 3 });
      open.push(one);
      registries.push(await one.bus.registry("sessions"));
    }
    return registries;
  }

  /** Repeats a write until its outcome is known. */
  async function untilKnown<T>(task: () => Promise<T>): Promise<T> {
    for (let tries = 1; ; tries += 1) {
      try {
        return await task();
      } catch (error) {
        if (tries === 10) throw error;
      }
    }
  }

  it("L1: at most one of twelve writers wins from the same revision, while the leader steps down", async () => {
    const registries = await openAll();
    let revision = (await registries[0]?.get("raced"))?.revision ?? 0;
    for (let round = 0; round < 30; round += 1) {
      const race = Promise.allSettled(
        Array.from({ length: 12 }, async (_, writer) => {
          const outcome = await registries[writer % 3]?.update("raced", `${round}/${writer}`, revision);
          return outcome === undefined ? [] : [outcome];
        }),
      );
      if (round % 5 === 2) await cluster.stepDown(stream);
      const winners = (await race).flatMap((outcome) => (outcome.status === "fulfilled" ? outcome.value : []));
      expect(winners.length).toBeLessThanOrEqual(1);
      const current = await untilKnown(async () => registries[round % 3]?.get("raced"));
      expect(current?.revision).toBeGreaterThan(revision);
      if (winners.length === 1) expect(current?.revision).toBe(winners[0]);
      revision = current?.revision ?? 0;
    }
  });

  it("B1: watches at every server see the newest state within seconds after the leader was killed", async () => {
    const registries = await openAll();
    const views = await Promise.all(
      registries.map(async (registry) => {
        const view = new Map<string, string>();
        await registry.watch((change) => {
          if (change.kind === "put") view.set(change.record.key, change.record.value);
          else view.delete(change.key);
        });
        return view;
      }),
    );
    for (let round = 0; round < 2; round += 1) {
      const leader = await eventually("a leader", () => cluster.leaderOf(stream));
      await leader.kill9();
      for (let key = 0; key < 20; key += 1) await untilKnown(async () => registries[key % 3]?.put(`k${key}`, `round ${round}`));
      await untilKnown(async () => registries[1]?.delete("k7"));
      await eventually(
        "all views to agree",
        () => views.every((view) => !view.has("k7") && [...view.values()].filter((value) => value === `round ${round}`).length >= 19),
        15_000,
      );
      await cluster.heal();
    }
  });
});
