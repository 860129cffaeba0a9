/** Open calls are never missed, whoever dies when, and without a third write on the path of a call (L4). */
import { randomUUID } from "node:crypto";
import { headers, type NatsConnection } from "@nats-io/transport-node";
import type { Ledger } from "@toolrunner/broker/internal";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { eventually } from "../kit/eventually.js";
import { type NatsServer, startNatsServer } from "../kit/nats-server.js";
import { connectTo, type OpenedLedger, type OpenOptions, openOn, systemClock } from "./jetstream-harness.js";

/** Time that runs `factor` times as fast, so that minutes of waiting pass in a second. */
function quickClock(factor: number): typeof systemClock {
  return {
    now: systemClock.now,
    monotonic: () => systemClock.monotonic() * factor,
    schedule: (delayMs, task) => systemClock.schedule(delayMs / factor, task),
  };
}

const freshCall = (): string => `call_${randomUUID()}`;
const entryOf = (mark: "opens" | "settles" | "none") => ({ entryId: `ent_${randomUUID()}`, data: mark, mark });

async function append(ledger: Ledger, callId: string, expected: number, mark: "opens" | "settles" | "none"): Promise<number> {
  const outcome = await ledger.append(callId, expected, entryOf(mark));
  if (outcome.kind === "conflict") throw new Error(`conflict at ${callId}`);
  return outcome.version;
}

async function openCallsOf(ledger: Ledger): Promise<Set<string>> {
  const named = new Set<string>();
  for await (const { callId } of ledger.openCalls()) named.add(callId);
  return named;
}

describe.each(["2.9", "2.10"] as const)("the index of open calls on nats-server %s", { timeout: 30_000 }, (version) => {
  let server: NatsServer;
  let outside: NatsConnection;
  beforeAll(async () => {
    server = await startNatsServer({ version });
    outside = await connectTo([server.url]);
  }, 40_000);
  afterAll(async () => {
    await outside.close();
    await server.dispose();
  });

  const opened = async (prefix: string, options: OpenOptions = {}): Promise<OpenedLedger> => {
    // In the quick clock's time, the default is over before a busy machine has answered.
    const result = await openOn([server.url], { openTimeoutMs: 1_200_000, ...options, prefix });
    onTestFinished(() => result.ledger.close());
    return result;
  };
  /** The process is gone without a word: nothing is tidied up. */
  const die = (broker: OpenedLedger): Promise<void> => broker.connection.close();

  interface Record {
    readonly scanFrom: number;
    readonly state: string;
  }
  const api = async (
    subject: string,
    body: object,
  ): Promise<{ error?: unknown; message?: { seq: number; data?: string }; state?: object }> =>
    (await outside.request(`$JS.API.${subject}`, JSON.stringify(body), { timeout: 5_000 })).json();
  const isMarked = async (prefix: string, callId: string): Promise<boolean> =>
    (await api(`STREAM.MSG.GET.${prefix}_index`, { last_by_subj: `${prefix}.index.open.${callId}` })).error === undefined;
  const recordOf = async (prefix: string, incarnation: string): Promise<(Record & { readonly seq: number }) | undefined> => {
    const { message } = await api(`STREAM.MSG.GET.${prefix}_index`, { seq: 1, next_by_subj: `${prefix}.index.scan.${incarnation}.*` });
    if (message?.data === undefined) return undefined;
    return { ...(JSON.parse(Buffer.from(message.data, "base64").toString()) as Record), seq: message.seq };
  };

  it("names a call whose broker died right after it was acknowledged, also after that broker was retired", async () => {
    const dead = await opened("dead");
    const [open, settled] = [freshCall(), freshCall()];
    await append(dead.ledger, open, 0, "opens");
    await append(dead.ledger, settled, await append(dead.ledger, settled, 0, "opens"), "settles");
    await die(dead);
    const live = await opened("dead");
    expect(await openCallsOf(live.ledger)).toEqual(new Set([open]));
    await live.ledger.retire(dead.incarnation);
    expect(await recordOf("dead", dead.incarnation)).toBeUndefined();
    expect(await isMarked("dead", open)).toBe(true);
    expect(await isMarked("dead", settled)).toBe(false);
    expect(await openCallsOf(live.ledger)).toEqual(new Set([open]));
    await live.ledger.retire(dead.incarnation);
    expect(await openCallsOf((await opened("dead")).ledger)).toEqual(new Set([open]));
  });

  it("writes nothing beside the entries of quick calls", async () => {
    const { ledger } = await opened("quick");
    const written = async (): Promise<number> => ((await api("STREAM.INFO.quick_index", {})).state as { last_seq: number }).last_seq;
    const before = await written();
    await Promise.all(
      Array.from({ length: 1_000 }, async () => {
        const callId = freshCall();
        await append(ledger, callId, await append(ledger, callId, 0, "opens"), "settles");
      }),
    );
    // Only the broker's own record may have moved on, once every two seconds.
    expect((await written()) - before).toBeLessThanOrEqual(3);
  });

  it("gives a call that stays open a marker, moves on past it, and takes the marker away when it settles", async () => {
    const { ledger, incarnation } = await opened("slow", { clock: quickClock(8) });
    const callId = freshCall();
    const first = await append(ledger, callId, 0, "opens");
    expect(await isMarked("slow", callId)).toBe(false);
    await eventually("it has a marker", () => isMarked("slow", callId));
    await eventually("the record moves past it", async () => ((await recordOf("slow", incarnation))?.scanFrom ?? 0) > first);
    const other = await opened("slow");
    expect(await openCallsOf(other.ledger)).toEqual(new Set([callId]));
    await append(ledger, callId, first, "settles");
    await eventually("the marker is gone", async () => !(await isMarked("slow", callId)));
    expect(await openCallsOf(other.ledger)).toEqual(new Set());
  });

  it("takes the marker away also when another broker settles the call, or reads that it is settled", async () => {
    const first = await opened("taken", { clock: quickClock(8) });
    const [adopted, seen] = [freshCall(), freshCall()];
    const versions = [await append(first.ledger, adopted, 0, "opens"), await append(first.ledger, seen, 0, "opens")] as const;
    await eventually("both have markers", async () => (await isMarked("taken", adopted)) && (await isMarked("taken", seen)));
    const second = await opened("taken");
    expect(await openCallsOf(second.ledger)).toEqual(new Set([adopted, seen]));
    await append(second.ledger, adopted, versions[0], "settles");
    await eventually("its marker is gone", async () => !(await isMarked("taken", adopted)));
    // Settled by a writer that died before it could take the marker away.
    const entry = `s ${versions[1]} ent_x inc_x`;
    const all = headers();
    all.append("Tr-Entry", entry);
    await outside.request(`taken.call.${seen}`, "settled", { timeout: 5_000, headers: all });
    for await (const _ of second.ledger.read(seen));
    await eventually("its marker is gone", async () => !(await isMarked("taken", seen)));
  });

  it("has a broker that was taken for dead write a new record before its next call is acknowledged", async () => {
    const paused = await opened("paused");
    const live = await opened("paused");
    const before = freshCall();
    await append(paused.ledger, before, 0, "opens");
    await live.ledger.retire(paused.incarnation);
    expect(await recordOf("paused", paused.incarnation)).toBeUndefined();
    const after = freshCall();
    const version = await append(paused.ledger, after, 0, "opens");
    const record = await recordOf("paused", paused.incarnation);
    expect(record?.state).toBe("live");
    expect(record?.scanFrom).toBeLessThanOrEqual(version);
    expect(paused.log.lines.some(({ event }) => event === "ledger_record_replaced")).toBe(true);
    await die(paused);
    expect(await openCallsOf(live.ledger)).toEqual(new Set([before, after]));
    await live.ledger.retire(paused.incarnation);
    expect(await openCallsOf(live.ledger)).toEqual(new Set([before, after]));
  });

  it("has a broker notice by itself that its record is gone, when it heard nothing of it", async () => {
    const { ledger, incarnation } = await opened("gone", { clock: quickClock(8) });
    const record = await recordOf("gone", incarnation);
    await api("STREAM.MSG.DELETE.gone_index", { seq: record?.seq });
    expect(await recordOf("gone", incarnation)).toBeUndefined();
    await eventually("there is a new one", async () => (await recordOf("gone", incarnation))?.state === "live");
    const callId = freshCall();
    await append(ledger, callId, 0, "opens");
    expect(await openCallsOf((await opened("gone")).ledger)).toEqual(new Set([callId]));
  });

  it("loses no call when brokers are retired over and over while they take calls", async () => {
    const [busy, retirer] = [await opened("churn"), await opened("churn")];
    const callIds = Array.from({ length: 600 }, freshCall);
    let done = false;
    const retiring = (async () => {
      for (let times = 0; !done || times < 3; times += 1) await retirer.ledger.retire(busy.incarnation);
    })();
    for (let at = 0; at < callIds.length; at += 20) {
      await Promise.all(callIds.slice(at, at + 20).map((callId) => append(busy.ledger, callId, 0, "opens")));
    }
    done = true;
    await retiring;
    await die(busy);
    const third = await opened("churn");
    await third.ledger.retire(busy.incarnation);
    const named = await openCallsOf(third.ledger);
    expect(callIds.filter((callId) => !named.has(callId))).toEqual([]);
  });

  it("has live brokers retire a dead one that nobody names, so that scans stay short", async () => {
    const dead = await opened("left");
    const callId = freshCall();
    await append(dead.ledger, callId, 0, "opens");
    await die(dead);
    const live = await opened("left", { clock: quickClock(60) });
    await eventually("its record is gone", async () => (await recordOf("left", dead.incarnation)) === undefined, 15_000);
    expect((await recordOf("left", live.incarnation))?.state).toBe("live");
    expect(await openCallsOf(live.ledger)).toEqual(new Set([callId]));
  });

  it("leaves no record when it is closed, and a marker for what is open", async () => {
    const broker = await opened("closed");
    const callId = freshCall();
    await append(broker.ledger, callId, 0, "opens");
    await broker.ledger.close();
    expect(await recordOf("closed", broker.incarnation)).toBeUndefined();
    expect(await isMarked("closed", callId)).toBe(true);
  });
});
