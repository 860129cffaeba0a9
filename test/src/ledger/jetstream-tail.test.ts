/** How a tail on JetStream keeps from reading what its own ledger appended, and reads the rest. */
import type { Ledger, TailedEntry } from "@toolrunner/broker/internal";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { type NatsServer, startNatsServer } from "../kit/nats-server.js";
import { connectTo, type OpenedLedger, openOn } from "./jetstream-harness.js";

type Version = TailedEntry["version"];

let server: NatsServer;
let prefixes = 0;

beforeAll(async () => {
  server = await startNatsServer({ version: "2.10" });
}, 60_000);
afterAll(() => server.dispose());

async function opened(prefix: string): Promise<OpenedLedger> {
  const one = await openOn([server.url], { prefix });
  onTestFinished(async () => {
    await one.ledger.close();
    await one.connection.close();
  });
  return one;
}

const freshPrefix = (): string => {
  prefixes += 1;
  return `tail_${prefixes}`;
};

let last = 0;
async function append(ledger: Ledger, note: string | undefined): Promise<Version> {
  last += 1;
  const outcome = await ledger.append(`call_${last}`, 0, { entryId: `entry_${last}`, data: `data ${last}`, mark: "none", note });
  if (outcome.kind !== "appended") throw new Error(`the append was a ${outcome.kind}`);
  return outcome.version;
}

/** Follows a ledger until the test ends. */
function follow(ledger: Ledger, from: Version): readonly TailedEntry[] {
  const abort = new AbortController();
  const seen: TailedEntry[] = [];
  const ended = (async () => {
    for await (const entry of ledger.tail(from, abort.signal)) seen.push(entry);
  })();
  onTestFinished(async () => {
    abort.abort();
    await ended;
  });
  return seen;
}

/** Readers of the calls' stream, as the server counts them. */
async function consumersOf(prefix: string): Promise<number> {
  const connection = await connectTo([server.url]);
  try {
    const answer = await connection.request(`$JS.API.STREAM.INFO.${prefix}_calls`, "", { timeout: 5_000 });
    return answer.json<{ state: { consumer_count: number } }>().state.consumer_count;
  } finally {
    await connection.close();
  }
}

const versions = (seen: readonly TailedEntry[]): readonly Version[] => seen.map(({ version }) => version);

describe("a tail on JetStream", () => {
  it("asks the server for nothing while its own ledger alone appends entries with notes", async () => {
    const prefix = freshPrefix();
    const { ledger } = await opened(prefix);
    const seen = follow(ledger, 1);
    const expected: Version[] = [];
    for (let index = 0; index < 200; index += 1) expected.push(await append(ledger, "queued"));
    await expect.poll(() => versions(seen)).toEqual(expected);
    expect(seen.every(({ data }) => data === undefined)).toBe(true);
    expect(await consumersOf(prefix)).toBe(0);
  });

  it("reads what others append, without its data, and stops reading when it is alone again", { timeout: 30_000 }, async () => {
    const prefix = freshPrefix();
    const [here, there] = [await opened(prefix), await opened(prefix)];
    const seen = follow(here.ledger, 1);
    const expected: Version[] = [];
    for (let index = 0; index < 60; index += 1) expected.push(await append(index % 2 === 0 ? here.ledger : there.ledger, "queued"));
    await here.ledger.latest();
    await expect.poll(() => versions(seen), { timeout: 1_500 }).toEqual(expected);
    expect(seen.every(({ data }) => data === undefined)).toBe(true);
    expect(await consumersOf(prefix)).toBe(1);
    await expect
      .poll(
        async () => {
          expected.push(await append(here.ledger, "queued"));
          return consumersOf(prefix);
        },
        { timeout: 15_000 },
      )
      .toBe(0);
    expected.push(await append(here.ledger, "queued"), await append(there.ledger, "queued"));
    await here.ledger.latest();
    await expect.poll(() => versions(seen)).toEqual(expected);
  });

  it("brings data where there is no note, and leaves it out again after many notes", async () => {
    const prefix = freshPrefix();
    const { ledger } = await opened(prefix);
    const written: (string | undefined)[] = [...Array.from({ length: 1_500 }, () => "queued"), undefined, "running", undefined];
    for (const note of written.slice().reverse()) await append(ledger, note);
    const seen = follow(ledger, 1);
    await expect.poll(() => seen.length, { timeout: 10_000 }).toBe(written.length);
    expect(seen.map(({ note }) => note)).toEqual(written.slice().reverse());
    expect(seen.every(({ note, data }) => (note === undefined) === (data !== undefined))).toBe(true);
  });

  it("goes on past messages that were deleted, in the middle and at the end, and past what is no entry", async () => {
    const prefix = freshPrefix();
    const { ledger, connection, log } = await opened(prefix);
    const expected: Version[] = [];
    for (let index = 0; index < 10; index += 1) expected.push(await append(ledger, "queued"));
    const remove = (seq: Version) => connection.request(`$JS.API.STREAM.MSG.DELETE.${prefix}_calls`, JSON.stringify({ seq }));
    await connection.request(`${prefix}.call.call_other`, "no entry");
    for (const gone of [...expected.splice(3, 2), ...expected.splice(-2)]) await remove(gone);
    await remove(11);
    const seen = follow(ledger, 1);
    await expect.poll(() => versions(seen), { timeout: 10_000 }).toEqual(expected);
    const next = await append(ledger, "queued");
    await expect.poll(() => versions(seen).at(-1), { timeout: 10_000 }).toBe(next);
    await connection.request(`${prefix}.call.call_other`, "no entry");
    const after = await append(ledger, "queued");
    await expect.poll(() => versions(seen).at(-1), { timeout: 10_000 }).toBe(after);
    expect(log.lines.map(({ event }) => event)).toContain("ledger_forked");
  });

  it("misses nothing while both append at once and the server is killed in between", { timeout: 60_000 }, async () => {
    const prefix = freshPrefix();
    const [here, there] = [await opened(prefix), await opened(prefix)];
    const [seenHere, seenThere] = [follow(here.ledger, 1), follow(there.ledger, 1)];
    const appends: Promise<Version>[] = [];
    for (let index = 0; index < 300; index += 1) {
      appends.push(append(index % 3 === 0 ? here.ledger : there.ledger, index % 10 === 0 ? undefined : "queued"));
      if (index === 150) {
        await server.kill9();
        await server.restart();
      }
    }
    const expected = (await Promise.all(appends)).sort((a, b) => a - b);
    await here.ledger.latest();
    await there.ledger.latest();
    for (const seen of [seenHere, seenThere]) {
      await expect.poll(() => expected.filter((version) => !versions(seen).includes(version)), { timeout: 20_000 }).toEqual([]);
      expect(versions(seen)).toEqual([...new Set(versions(seen))].sort((a, b) => a - b));
    }
  });
});
