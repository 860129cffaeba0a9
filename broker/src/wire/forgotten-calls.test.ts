import { afterEach, describe, expect, it } from "vitest";
import { decodeEntry } from "../domain/call/entry-codec.js";
import type { Ledger } from "../domain/ports/ledger.js";
import { createMemoryLedger } from "../ledger/memory/memory-ledger.js";
import { AGENT, connectRunner, createSite, recordedLog, type Site, startBroker, until } from "./wire.test.kit.js";
import { withLedger } from "./with-ledger.test.kit.js";

const stops: (() => Promise<unknown> | unknown)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) {
    await stop();
  }
});

const CALL = { toolset: "shop", tool: "safe", arguments: { x: 1 } };
const FORGOTTEN = "call_aaaaaaaaaaaaaaaaaaaaaaaaaa";

/** Reads of each call, and a way to let listings fail. */
function watched(reads: Map<string, number>, fails: { now: boolean }) {
  return (inner: Ledger): Ledger =>
    withLedger(inner, {
      read(callId, from) {
        reads.set(callId, (reads.get(callId) ?? 0) + 1);
        return inner.read(callId, from);
      },
      async *openCalls() {
        if (fails.now) throw new Error("no listing now");
        yield* inner.openCalls();
      },
    });
}

async function scene(checkMs = 50) {
  const { log, lines } = recordedLog();
  const site = createSite(log);
  const reads = new Map<string, number>();
  const fails = { now: false };
  const broker = await startBroker(site, { openCallCheckMs: checkMs }, { ledger: watched(reads, fails) });
  stops.push(() => broker.stop());
  return { site, broker, reads, fails, lines };
}

/** As an append does that lands after its broker gave it up: the call is stored, and nobody has it in memory. */
async function storeBehindItsBack(site: Site, like: string): Promise<void> {
  const first = site.store.entriesOfCall.get(like)?.[0];
  if (first === undefined || decodeEntry(first).kind !== "accepted") throw new Error("the call was not accepted");
  await createMemoryLedger({ store: site.store }).append(FORGOTTEN, 0, { entryId: "entry_late", data: first.data, mark: "opens" });
}

describe("open calls that name a broker which does not know them (L2)", () => {
  it("are found and driven, without anybody's asking for them", async () => {
    const { site, broker, lines } = await scene();
    const { id } = await broker.wire.calls.create(AGENT, CALL, {});
    await storeBehindItsBack(site, id);
    await until("the discovery", () => lines.some(({ event }) => event === "forgotten_call_found"));
    const runner = await connectRunner(broker.wire);
    runner.succeed(await runner.next());
    runner.succeed(await runner.next());
    for (const each of [id, FORGOTTEN]) {
      const answered = await broker.wire.calls.get(AGENT, each, { wait_seconds: 5 });
      expect(answered.state).toBe("succeeded");
    }
    expect(lines.filter(({ event }) => event === "forgotten_call_found")).toHaveLength(1);
  });

  it("are found after listings that failed", async () => {
    const { site, broker, fails, lines } = await scene();
    const { id } = await broker.wire.calls.create(AGENT, CALL, {});
    fails.now = true;
    await until("a failure", () => lines.some(({ event }) => event === "open_calls_not_compared"));
    await storeBehindItsBack(site, id);
    fails.now = false;
    await until("the discovery", () => lines.some(({ event }) => event === "forgotten_call_found"));
  });

  it("cost one read for each call of another broker, not one in each round", async () => {
    const { site, broker, reads, lines } = await scene(20);
    const other = await startBroker(site, { openCallCheckMs: 60_000 });
    stops.push(() => other.stop());
    const theirs: string[] = [];
    for (let index = 0; index < 20; index += 1) theirs.push((await other.wire.calls.create(AGENT, CALL, {})).id);
    await until("all to be read", () => theirs.every((id) => (reads.get(id) ?? 0) > 0));
    const mine = (await broker.wire.calls.create(AGENT, CALL, {})).id;
    await storeBehindItsBack(site, mine);
    await until("another round", () => lines.some(({ event }) => event === "forgotten_call_found"));
    expect(theirs.map((id) => reads.get(id))).toEqual(theirs.map(() => 1));
    expect(broker.wire.inspect().drivers).toBe(2);
  });
});
