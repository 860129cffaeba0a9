/** What the ledger does when servers are of the wrong kind, away, or hold what nobody should have written. */
import { randomUUID } from "node:crypto";
import { connect, headers } from "@nats-io/transport-node";
import { LedgerError, type TailedEntry } from "@toolrunner/broker/internal";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { eventually } from "../kit/eventually.js";
import { type NatsServer, startNatsServer } from "../kit/nats-server.js";
import { startNatsCluster } from "../kit/nats-server-cluster.js";
import { connectTo, type OpenedLedger, type OpenOptions, openOn } from "./jetstream-harness.js";

const code =
  (wanted: LedgerError["code"], ...words: string[]) =>
  (error: unknown) =>
    error instanceof LedgerError && error.code === wanted && words.every((word) => error.message.includes(word));

const freshCall = (): string => `call_${randomUUID()}`;
const entryOf = (data: string, mark: "opens" | "settles" | "none" = "none") => ({ entryId: `ent_${randomUUID()}`, data, mark });

async function collect<T>(source: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of source) all.push(item);
  return all;
}

async function opened(server: NatsServer, options: OpenOptions = {}): Promise<OpenedLedger> {
  const result = await openOn([server.url], options);
  onTestFinished(() => result.ledger.close());
  return result;
}

async function appendNow(
  ledger: OpenedLedger["ledger"],
  callId: string,
  expected: number,
  entry: ReturnType<typeof entryOf>,
): Promise<number> {
  const outcome = await ledger.append(callId, expected, entry);
  if (outcome.kind === "conflict") throw new Error(`conflict at ${callId}`);
  return outcome.version;
}

describe("servers that may not hold a ledger", () => {
  it("are refused at the start when replicas are wanted and one is older than 2.10.27 (L1)", { timeout: 40_000 }, async () => {
    const alone = await startNatsServer({ version: "2.9" });
    onTestFinished(() => alone.dispose());
    await expect(openOn([alone.url], { replicas: 3 })).rejects.toSatisfy(code("unsupported_server", "2.9.10", "2.10.27"));
    await (await opened(alone, { replicas: 1 })).ledger.check();
  });

  it("are refused when only another server of the cluster is too old, seen by its greeting (L1)", { timeout: 60_000 }, async () => {
    const cluster = await startNatsCluster({ size: 3, versions: ["2.10", "2.9", "2.10"] });
    onTestFinished(() => cluster.dispose());
    const [good, old] = cluster.urls as [string, string];
    await expect(openOn([good], { replicas: 3 })).rejects.toSatisfy(
      code("unsupported_server", "2.9.10", old.replace("nats://127.0.0.1:", "")),
    );
  });

  it("are refused when they have no JetStream, no cluster, or too small messages, each with what to do", { timeout: 40_000 }, async () => {
    const bare = await startNatsServer({ jetStream: false });
    onTestFinished(() => bare.dispose());
    await expect(openOn([bare.url], { openTimeoutMs: 1_000 })).rejects.toSatisfy(code("unreachable", "JetStream"));
    const alone = await startNatsServer();
    onTestFinished(() => alone.dispose());
    await expect(openOn([alone.url], { replicas: 3 })).rejects.toSatisfy(code("misconfigured", "tr_calls"));
    const small = await startNatsServer({ config: "max_payload: 65536" });
    onTestFinished(() => small.dispose());
    await expect(openOn([small.url])).rejects.toSatisfy(code("misconfigured", "max_payload", "1048576"));
  });
});

describe("a ledger on one nats-server", { timeout: 40_000 }, () => {
  let server: NatsServer;
  beforeAll(async () => {
    server = await startNatsServer({ version: "2.10" });
  }, 40_000);
  afterAll(() => server.dispose());

  it("refuses a stream that would lose entries or read stale ones, naming each fault (L5)", async () => {
    const connection = await connectTo([server.url]);
    onTestFinished(() => connection.close());
    const faults = [
      { allow_direct: true },
      { discard: "old" },
      { max_age: 3_600_000_000_000 },
      { max_msgs: 1_000 },
      { max_bytes: 1_000_000 },
      { max_msgs_per_subject: 5 },
      { deny_delete: true },
      { retention: "interest" },
    ];
    for (const [index, fault] of faults.entries()) {
      const prefix = `bad${index}`;
      const config = {
        name: `${prefix}_calls`,
        subjects: [`${prefix}.call.*`],
        discard: "new",
        storage: "file",
        num_replicas: 1,
        ...fault,
      };
      const made = await connection.request(`$JS.API.STREAM.CREATE.${config.name}`, JSON.stringify(config), { timeout: 5_000 });
      expect(made.json<{ error?: unknown }>().error, JSON.stringify(fault)).toBeUndefined();
      const [field = ""] = Object.keys(fault);
      await expect(openOn([server.url], { prefix }), field).rejects.toSatisfy(code("misconfigured", `${prefix}_calls`, field));
    }
  });

  it("can be opened by ten brokers at once when its streams are not there yet", async () => {
    const all = await Promise.all(Array.from({ length: 10 }, () => opened(server, { prefix: "many" })));
    const callId = freshCall();
    const outcomes = await Promise.all(all.map(({ ledger }) => ledger.append(callId, 0, entryOf("x", "opens"))));
    expect(outcomes.filter(({ kind }) => kind === "appended")).toHaveLength(1);
  });

  it("skips, counts and reports what is no link of a call's chain, in read, tail and openCalls (L1)", async () => {
    const { ledger, log, connection } = await opened(server, { prefix: "forks" });
    const callId = freshCall();
    const forge = async (header: string | undefined, data: string): Promise<void> => {
      const all = headers();
      if (header !== undefined) all.append("Tr-Entry", header);
      await connection.request(`forks.call.${callId}`, data, { timeout: 5_000, headers: all });
    };
    const first = await appendNow(ledger, callId, 0, entryOf("first", "opens"));
    await forge("o 0 forged_1 inc", "another first");
    await forge(`s ${first + 1} forged_2 inc`, "settles after the fork");
    await forge(undefined, "no entry at all");
    await forge(`- ${first} second inc`, "second");
    const valid = ["first", "second"];
    expect((await collect(ledger.read(callId))).map(({ data }) => data)).toEqual(valid);
    expect((await collect(ledger.read(callId, first))).map(({ data }) => data)).toEqual(valid);
    const seen: TailedEntry[] = [];
    const abort = new AbortController();
    for await (const stored of ledger.tail(first, abort.signal)) {
      seen.push(stored);
      if (seen.length === 2) abort.abort();
    }
    expect(seen.map(({ data }) => data)).toEqual(valid);
    expect(await collect(ledger.openCalls())).toContainEqual({ callId });
    expect(log.lines.filter(({ event }) => event === "ledger_forked").length).toBeGreaterThanOrEqual(4);
  });

  it("reads a call whose oldest entries were removed from what is left, as retention needs it (L6)", async () => {
    const { ledger, connection } = await opened(server, { prefix: "kept" });
    const callId = freshCall();
    const first = await appendNow(ledger, callId, 0, entryOf("a", "opens"));
    const second = await appendNow(ledger, callId, first, entryOf("b"));
    const third = await appendNow(ledger, callId, second, entryOf("c", "settles"));
    await connection.request("$JS.API.STREAM.MSG.DELETE.kept_calls", JSON.stringify({ seq: first, no_erase: true }), { timeout: 5_000 });
    expect((await collect(ledger.read(callId))).map(({ version }) => version)).toEqual([second, third]);
    expect(await ledger.append(callId, 0, entryOf("again", "opens"))).toEqual({ kind: "conflict", current: third });
  });

  it("has many brokers' tails agree while the server is killed and started again", async () => {
    const own = await startNatsServer({ version: "2.10" });
    onTestFinished(() => own.dispose());
    const [writer, reader] = [await opened(own), await opened(own)];
    const abort = new AbortController();
    const seen: number[] = [];
    const following = (async () => {
      for await (const { version } of reader.ledger.tail(0, abort.signal)) seen.push(version);
    })();
    const versions: number[] = [];
    for (let round = 0; round < 3; round += 1) {
      const outcomes = Promise.all(Array.from({ length: 200 }, () => appendNow(writer.ledger, freshCall(), 0, entryOf("x"))));
      await own.kill9();
      await own.restart();
      versions.push(...(await outcomes));
    }
    await eventually("the tail has all", () => seen.length >= versions.length, 20_000);
    abort.abort();
    await following;
    expect(seen).toEqual([...versions].sort((a, b) => a - b));
  });

  it("keeps an append pending while the server is away for seconds, and answers it afterwards (L2)", async () => {
    const own = await startNatsServer({ version: "2.9" });
    onTestFinished(() => own.dispose());
    const { ledger, log } = await opened(own);
    const callId = freshCall();
    const first = await appendNow(ledger, callId, 0, entryOf("before", "opens"));
    await own.kill9();
    let answered = false;
    const late = appendNow(ledger, callId, first, entryOf("while it was away")).finally(() => {
      answered = true;
    });
    await expect(ledger.check()).rejects.toSatisfy(code("unreachable"));
    await eventually("it says that outcomes are unknown", () => log.lines.some(({ event }) => event === "ledger_outcome_unknown"));
    expect(answered).toBe(false);
    await own.restart();
    const second = await late;
    expect((await collect(ledger.read(callId))).map(({ version }) => version)).toEqual([first, second]);
    await ledger.check();
  });

  it("keeps an append pending while the server is stopped but connected, and stores it once (L2)", async () => {
    const own = await startNatsServer({ version: "2.10" });
    onTestFinished(() => own.dispose());
    const { ledger } = await opened(own);
    const callIds = Array.from({ length: 50 }, freshCall);
    own.pause();
    const late = Promise.all(callIds.map((callId) => appendNow(ledger, callId, 0, entryOf("x", "opens"))));
    await expect(ledger.check()).rejects.toSatisfy(code("unreachable"));
    own.resume();
    await late;
    for (const callId of callIds) expect(await collect(ledger.read(callId))).toHaveLength(1);
  });

  it("rejects what is pending when it is closed while the server is away", async () => {
    const own = await startNatsServer({ version: "2.10" });
    onTestFinished(() => own.dispose());
    const { ledger } = await opened(own);
    await own.kill9();
    const pending = expect(ledger.append(freshCall(), 0, entryOf("x"))).rejects.toSatisfy(code("closed"));
    await ledger.close();
    await pending;
  });

  it("rejects what is pending when its connection is closed for good", async () => {
    const own = await startNatsServer({ version: "2.10" });
    onTestFinished(() => own.dispose());
    const { ledger, connection } = await opened(own);
    await own.kill9();
    const pending = expect(ledger.append(freshCall(), 0, entryOf("x"))).rejects.toSatisfy(code("closed"));
    await connection.close();
    await pending;
    await eventually("the ledger is closed", () =>
      ledger.check().then(
        () => false,
        (error: unknown) => code("closed")(error),
      ),
    );
  });

  it("lives through a connection that is closed in the moment in which its server dies", async () => {
    const own = await startNatsServer({ version: "2.10" });
    onTestFinished(() => own.dispose());
    for (let round = 0; round < 6; round += 1) {
      const { ledger, connection } = await opened(own);
      await own.kill9();
      const pending = expect(ledger.append(freshCall(), 0, entryOf("x"))).rejects.toSatisfy(code("closed"));
      // A write that fails now has no promise of its own: were it not caught, it would end this process.
      await connection.close();
      await pending;
      await own.restart();
    }
  });

  it("does not keep a connection of its own: the caller's stays open after close", async () => {
    const connection = await connect({ servers: server.url.replace("nats://", "") });
    onTestFinished(() => connection.close());
    const { ledger } = await opened(server, { prefix: "open" });
    await ledger.close();
    expect(connection.isClosed()).toBe(false);
  });
});
