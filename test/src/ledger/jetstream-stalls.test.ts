/** Readers that stall without a word: their consumer is deleted, their server stands still, their connection is open and dead. */
import type { Ledger, TailedEntry } from "@toolrunner/broker/internal";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { eventually } from "../kit/eventually.js";
import { type NatsServer, startNatsServer } from "../kit/nats-server.js";
import { startTcpProxy } from "../kit/tcp-proxy.js";
import { connectTo, openOn } from "./jetstream-harness.js";

const isLong = process.env.TOOLRUNNER_LONG === "1";

let server: NatsServer;
let prefixes = 0;
beforeAll(async () => {
  server = await startNatsServer({ version: "2.10" });
}, 60_000);
afterAll(() => server.dispose());

let last = 0;
async function append(ledger: Ledger): Promise<number> {
  last += 1;
  const outcome = await ledger.append(`call_${last}`, 0, { entryId: `entry_${last}`, data: `data ${last}`, mark: "none" });
  if (outcome.kind !== "appended") throw new Error(`the append was a ${outcome.kind}`);
  return outcome.version;
}

/** A reader behind a proxy, and a writer that is not, on streams of their own; the reader has read the first entry. */
async function scene() {
  prefixes += 1;
  const prefix = `stall_${prefixes}`;
  const proxy = await startTcpProxy(server.port);
  const writer = await openOn([server.url], { prefix });
  const reader = await openOn([`nats://127.0.0.1:${proxy.port}`], { prefix });
  const abort = new AbortController();
  const seen: TailedEntry[] = [];
  const following = (async () => {
    for await (const entry of reader.ledger.tail(1, abort.signal)) seen.push(entry);
  })();
  onTestFinished(async () => {
    abort.abort();
    await following;
    await Promise.all([reader.ledger.close(), writer.ledger.close()]);
    await proxy.close();
  });
  const written = [await append(writer.ledger)];
  await eventually("the first entry", () => seen.length === 1, 15_000);
  return {
    prefix,
    proxy,
    reader: reader.ledger,
    async write(count: number) {
      for (let index = 0; index < count; index += 1) written.push(await append(writer.ledger));
    },
    /** All that was written was read, once, in order, within `withinMs`. */
    async caughtUp(withinMs: number): Promise<number> {
      const startedAt = performance.now();
      await eventually("all entries", () => seen.length >= written.length, withinMs);
      expect(seen.map(({ version }) => version)).toEqual(written);
      return Math.round(performance.now() - startedAt);
    },
  };
}

async function deleteConsumers(prefix: string): Promise<number> {
  const connection = await connectTo([server.url]);
  try {
    const listed = await connection.request(`$JS.API.CONSUMER.NAMES.${prefix}_calls`, "", { timeout: 5_000 });
    const { consumers } = listed.json<{ consumers: string[] | null }>();
    for (const name of consumers ?? []) await connection.request(`$JS.API.CONSUMER.DELETE.${prefix}_calls.${name}`, "", { timeout: 5_000 });
    return consumers?.length ?? 0;
  } finally {
    await connection.close();
  }
}

describe("a tail on JetStream whose reader stalls (L5)", { timeout: 60_000 }, () => {
  it("goes on within seconds when its consumer is deleted on the server", async () => {
    const { prefix, write, caughtUp } = await scene();
    expect(await deleteConsumers(prefix)).toBeGreaterThan(0);
    await write(20);
    console.log(`after its consumer was deleted a tail caught up within ${await caughtUp(20_000)} ms`);
  });
});

const title = "a tail on JetStream whose connection or server stalls (L5)";
describe.skipIf(!isLong)(isLong ? title : `${title} [half a minute of time-outs: npm run test:long]`, { timeout: 60_000 }, () => {
  it("goes on when its connection was dead for six seconds and thaws, and brings nothing twice", async () => {
    const { proxy, write, caughtUp } = await scene();
    proxy.freeze(true);
    await write(20);
    // The reader's own watch gives the consumer up meanwhile.
    await new Promise((resolve) => setTimeout(resolve, 6_000));
    proxy.freeze(false);
    await write(5);
    await caughtUp(20_000);
  });

  it("goes on over a new connection when the old one stays open and dead for good", async () => {
    const { proxy, write, caughtUp } = await scene();
    proxy.freeze(true);
    await write(10);
    proxy.renew();
    await write(10);
    console.log(`over a new connection a tail caught up within ${await caughtUp(30_000)} ms`);
  });

  it("answers a read and a list of open calls that began on a dead connection, once there is another", async () => {
    const { proxy, reader } = await scene();
    proxy.freeze(true);
    const read = (async () => {
      const entries: string[] = [];
      for await (const entry of reader.read("call_1")) entries.push(entry.entryId);
      return entries;
    })();
    const listing = (async () => {
      const calls: string[] = [];
      for await (const { callId } of reader.openCalls()) calls.push(callId);
      return calls;
    })();
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    proxy.renew();
    expect(Array.isArray(await read)).toBe(true);
    expect(await listing).toEqual([]);
  });

  it("goes on when its server stood still for four seconds", async () => {
    const { write, caughtUp } = await scene();
    server.pause();
    await new Promise((resolve) => setTimeout(resolve, 4_000));
    server.resume();
    await write(20);
    await caughtUp(20_000);
  });
});
