import { headers, type Msg, type MsgHdrs, type NatsConnection } from "@nats-io/nats-core";
import { describe, expect, it } from "vitest";
import type { Clock } from "../../domain/ports/clock.js";
import { LedgerError } from "../../domain/ports/ledger.js";
import type { Log } from "../../domain/ports/log.js";
import { watchConnection } from "./connection-watch.js";
import { Requests } from "./requests.js";

/** Time that stands still until `advance`. */
class ManualClock implements Clock {
  #now = 0;
  #tasks: { at: number; task: () => void }[] = [];
  now = (): number => this.#now;
  monotonic = (): number => this.#now;
  schedule(delayMs: number, task: () => void): { cancel(): void } {
    const entry = { at: this.#now + delayMs, task };
    this.#tasks.push(entry);
    return { cancel: () => void this.#tasks.splice(this.#tasks.indexOf(entry), 1) };
  }
  advance(ms: number): void {
    const end = this.#now + ms;
    for (;;) {
      const next = this.#tasks.filter(({ at }) => at <= end).sort((a, b) => a.at - b.at)[0];
      if (next === undefined) break;
      this.#tasks.splice(this.#tasks.indexOf(next), 1);
      this.#now = next.at;
      next.task();
    }
    this.#now = end;
  }
}

interface Sent {
  readonly subject: string;
  readonly payload: string;
  readonly reply: string;
  readonly headers: MsgHdrs | undefined;
}

/** The few things of a connection that the ledger uses, played by a test. */
class FakeServer {
  readonly sent: Sent[] = [];
  version = "2.10.27";
  #callback: ((error: Error | null, message: Msg) => void) | undefined;
  #statuses: { type: string }[] = [];
  #wake: (() => void) | undefined;
  #close: () => void = () => undefined;
  readonly #closed = new Promise<void>((resolve) => {
    this.#close = resolve;
  });
  failWrites = false;

  connection(): NatsConnection {
    const server = this;
    const fake = {
      get info() {
        return { version: server.version };
      },
      getServer: () => "127.0.0.1:4222",
      isClosed: () => false,
      closed: () => this.#closed,
      status: () => this.#follow(),
      subscribe: (_subject: string, options: { callback: (error: Error | null, message: Msg) => void }) => {
        this.#callback = options.callback;
        return { unsubscribe: () => undefined };
      },
      publish: (subject: string, payload: string, options: { reply: string; headers?: MsgHdrs }) => {
        if (this.failWrites) throw new Error("not now");
        this.sent.push({ subject, payload, reply: options.reply, headers: options.headers });
      },
    };
    return fake as unknown as NatsConnection;
  }

  async *#follow(): AsyncGenerator<{ type: string }> {
    for (;;) {
      const status = this.#statuses.shift();
      if (status !== undefined) yield status;
      else
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
    }
  }

  async tell(type: "disconnect" | "reconnect"): Promise<void> {
    this.#statuses.push({ type });
    this.#wake?.();
    await new Promise((resolve) => setImmediate(resolve));
  }

  async closeForGood(): Promise<void> {
    this.#close();
    await new Promise((resolve) => setImmediate(resolve));
  }

  answer(to: Sent | undefined, body: object | "no responders"): void {
    const all = headers(body === "no responders" ? 503 : 0, body === "no responders" ? "No Responders" : "");
    const text = body === "no responders" ? "" : JSON.stringify(body);
    const message = {
      subject: to?.reply ?? "",
      headers: all,
      data: new TextEncoder().encode(text),
      json: () => JSON.parse(text) as unknown,
    };
    this.#callback?.(null, message as unknown as Msg);
  }
}

function setUp(versionMin = "2.9.10") {
  const [server, clock] = [new FakeServer(), new ManualClock()];
  const events: string[] = [];
  const keep = (event: string): void => void events.push(event);
  const log: Log = { debug: keep, info: keep, warn: keep, error: keep };
  const connection = server.connection();
  const watch = watchConnection(connection, versionMin, log);
  const requests = new Requests({ connection, watch, clock, log, random: () => 0.5, endOfTurn: (task) => task() });
  return { server, clock, events, watch, requests };
}

describe("requests to JetStream", () => {
  it("are repeated unchanged, at growing distances, until the outcome is known (L2)", async () => {
    const { server, clock, requests } = setUp();
    const all = headers();
    all.append("A", "b");
    const published = requests.publish("tr.call.x", "data", all);
    const unknown: (object | "no responders" | undefined)[] = [
      undefined,
      "no responders",
      { error: { code: 503, err_code: 10_008, description: "system temporarily unavailable" } },
      { error: { code: 400, err_code: 10_158, description: "conflict" } },
      { error: { code: 400, err_code: 10_164, description: "wrong last sequence" } },
      { error: { code: 503, err_code: 10_167 } },
      {},
    ];
    const distances: number[] = [];
    for (const [index, body] of unknown.entries()) {
      expect(server.sent).toHaveLength(index + 1);
      if (body !== undefined) server.answer(server.sent.at(-1), body);
      const askedAt = clock.monotonic();
      while (server.sent.length === index + 1) clock.advance(10);
      distances.push(clock.monotonic() - askedAt);
    }
    const answeredWaits = distances.slice(1);
    expect(answeredWaits).toEqual([...answeredWaits].sort((a, b) => a - b));
    expect(answeredWaits.at(-1)).toBeGreaterThan(1_000);
    server.answer(server.sent.at(-1), { stream: "tr_calls", seq: 12 });
    expect(await published).toMatchObject({ answer: { seq: 12 }, unknownAttempts: unknown.length });
    expect(new Set(server.sent.map(({ subject, payload, headers: sent }) => `${subject} ${payload} ${sent?.get("A")}`)).size).toBe(1);
    expect(new Set(server.sent.map(({ reply }) => reply)).size).toBe(server.sent.length);
  });

  it("count only the answer to the newest attempt: an older refusal may be out of date", async () => {
    const { server, clock, requests } = setUp();
    const published = requests.publish("tr.call.x", "data");
    clock.advance(5_000);
    const [first] = server.sent;
    const last = server.sent.at(-1);
    expect(first).not.toBe(last);
    server.answer(first, { error: { err_code: 10_071, description: "wrong last sequence: 5" } });
    server.answer(last, { seq: 6 });
    expect((await published).answer).toEqual({ seq: 6 });
  });

  it("tell of a failed compare at once, and of errors of reads that will not go away", async () => {
    const { server, requests } = setUp();
    const published = requests.publish("tr.call.x", "data");
    server.answer(server.sent[0], { error: { code: 400, err_code: 10_071, description: "wrong last sequence: 5" } });
    expect((await published).answer.error?.err_code).toBe(10_071);
    const asked = requests.ask("$JS.API.STREAM.INFO.x");
    server.answer(server.sent[1], { error: { code: 404, err_code: 10_059 } });
    expect((await asked).error?.err_code).toBe(10_059);
  });

  it("wait while the connection is down, and repeat what was in flight when it is back (L2)", async () => {
    const { server, clock, requests, events } = setUp();
    const inFlight = requests.publish("tr.call.x", "1");
    await server.tell("disconnect");
    const later = requests.publish("tr.call.y", "2");
    clock.advance(60_000);
    expect(server.sent).toHaveLength(1);
    expect(events).toContain("ledger_outcome_unknown");
    await server.tell("reconnect");
    clock.advance(300);
    expect(
      server.sent
        .slice(1)
        .map(({ payload }) => payload)
        .sort(),
    ).toEqual(["1", "2"]);
    for (const sent of server.sent.slice(1)) server.answer(sent, { seq: Number(sent.payload) });
    expect([(await inFlight).answer.seq, (await later).answer.seq]).toEqual([1, 2]);
  });

  it("survive a client that throws when it is asked to write", async () => {
    const { server, clock, requests } = setUp();
    server.failWrites = true;
    const published = requests.publish("tr.call.x", "data");
    clock.advance(100);
    server.failWrites = false;
    clock.advance(3_000);
    server.answer(server.sent.at(-1), { seq: 1 });
    expect((await published).answer.seq).toBe(1);
  });

  it("never go to a server that a reconnect found to be too old (L1)", async () => {
    const { server, clock, requests, watch, events } = setUp("2.10.27");
    server.version = "2.9.10";
    await server.tell("disconnect");
    await server.tell("reconnect");
    const held = requests.publish("tr.call.x", "data");
    clock.advance(60_000);
    expect(server.sent).toHaveLength(0);
    expect(watch.refusal?.code).toBe("unsupported_server");
    expect(events).toContain("ledger_server_unsupported");
    server.version = "2.10.28";
    await server.tell("reconnect");
    clock.advance(300);
    server.answer(server.sent[0], { seq: 1 });
    expect((await held).answer.seq).toBe(1);
  });

  it("reject with `closed` when the ledger or the connection is closed for good", async () => {
    const isClosed = (error: unknown): boolean => error instanceof LedgerError && error.code === "closed";
    const one = setUp();
    const pending = expect(one.requests.publish("tr.call.x", "data")).rejects.toSatisfy(isClosed);
    one.requests.close();
    await pending;
    await expect(one.requests.ask("x")).rejects.toSatisfy(isClosed);
    const other = setUp();
    const waiting = expect(other.requests.publish("tr.call.x", "data")).rejects.toSatisfy(isClosed);
    await other.server.closeForGood();
    await waiting;
  });
});
