import type { ServerResponse } from "node:http";
import { afterEach, describe, expect, it } from "vitest";
import { createClientWith } from "./client.js";
import { connectHttp } from "./http-transport.js";
import { callIn, createManualTime, refusal, type Script, type ScriptedBroker, startScriptedBroker } from "./testing/scripted-broker.js";
import type { CallEvent } from "./types.js";

const brokers: ScriptedBroker[] = [];
afterEach(async () => {
  await Promise.all(brokers.splice(0).map((broker) => broker.close()));
});

function event(seq: number, name = "progress"): CallEvent {
  return { type: "event", call_id: "call_1", seq, at: "2026-01-01T00:00:00.000Z", event: name, data: { text: `ü${seq}` } };
}

function frame(one: CallEvent): string {
  return `id: ${one.seq}\nevent: ${one.event}\ndata: ${JSON.stringify(one)}\n\n`;
}

function stream(response: ServerResponse): void {
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.flushHeaders();
}

async function setUp(script: Script, options: { readonly eventSilenceMs?: number; readonly retryForMs?: number } = {}) {
  const broker = await startScriptedBroker(script);
  brokers.push(broker);
  const time = createManualTime();
  const transport = connectHttp(broker.url, options.eventSilenceMs === undefined ? {} : { eventSilenceMs: options.eventSilenceMs });
  return { broker, time, client: createClientWith({ key: "k", transport, retryForMs: options.retryForMs ?? 60_000 }, time) };
}

async function seqs(events: AsyncIterable<CallEvent>): Promise<number[]> {
  const seen: number[] = [];
  for await (const one of events) seen.push(one.seq);
  return seen;
}

describe("following a call's events", () => {
  it("gives each event once and in order over broken streams, and ends after settled", async () => {
    const { broker, client } = await setUp(({ number }, response) => {
      if (number === 2) return refusal(503, "draining");
      stream(response);
      if (number === 1) {
        // Cut in the middle of an event.
        response.write(`: hello\n\n${frame(event(1, "requested"))}${frame(event(2))}${frame(event(3)).slice(0, 20)}`, () =>
          response.destroy(),
        );
      } else {
        // Begins too early, knows names that we do not, splits characters.
        const bytes = Buffer.from(
          `${frame(event(2))}data: no json\n\nevent: other\ndata: {}\n\n${frame(event(4, "brand_new"))}${frame(event(9, "settled"))}`,
        );
        const half = bytes.indexOf("ü") + 1;
        response.write(bytes.subarray(0, half), () => response.end(bytes.subarray(half)));
      }
      return undefined;
    });
    const seen: CallEvent[] = [];
    for await (const one of client.events("call_1")) seen.push(one);
    expect(seen).toEqual([event(1, "requested"), event(2), event(4, "brand_new"), event(9, "settled")]);
    expect(broker.requests.map(({ headers }) => headers["last-event-id"])).toEqual([undefined, "2", "2"]);
    expect(broker.requests[0]?.headers).toMatchObject({ accept: "text/event-stream", authorization: "Bearer k" });
  });

  it("begins after the event that it is given", async () => {
    const { broker, client } = await setUp((_request, response) => {
      stream(response);
      response.end(frame(event(6, "settled")));
      return undefined;
    });
    expect(await seqs(client.events("call_1", { afterSeq: 5 }))).toEqual([6]);
    expect(broker.requests[0]?.headers["last-event-id"]).toBe("5");
  });

  it("ends when the call had settled before the event that it begins after", async () => {
    const { client } = await setUp(({ line, headers }, response) => {
      if (headers.accept === "text/event-stream") {
        stream(response);
        response.end();
        return undefined;
      }
      return { status: 200, body: line.includes("/events") ? { data: [], next_page: null } : callIn("succeeded") };
    });
    expect(await seqs(client.events("call_1", { afterSeq: 99 }))).toEqual([]);
  });

  it("goes on when a stream ends while the call is open", async () => {
    const { time, client } = await setUp(({ headers, number }, response) => {
      if (headers.accept !== "text/event-stream") return { status: 202, body: callIn("running") };
      stream(response);
      response.end(number < 6 ? "" : frame(event(1, "settled")));
      return undefined;
    });
    expect(await seqs(client.events("call_1"))).toEqual([1]);
    expect(time.pauses.length).toBeGreaterThan(1);
  });

  it("throws a refusal, and unreachable when the broker stays away", async () => {
    const unknown = await setUp(() => refusal(404, "not_found"));
    await expect(seqs(unknown.client.events("call_1"))).rejects.toMatchObject({ code: "not_found", status: 404 });
    const away = await setUp((_request, response) => void response.destroy(), { retryForMs: 5_000 });
    await expect(seqs(away.client.events("call_1"))).rejects.toMatchObject({ code: "unreachable" });
    expect(away.broker.requests.length).toBeGreaterThan(3);
    const other = await setUp(() => ({ status: 200, body: "{}" }));
    await expect(seqs(other.client.events("call_1"))).rejects.toMatchObject({ code: "answer_invalid" });
  });

  it("takes silence for a broken stream", async () => {
    const { broker, client } = await setUp(
      ({ number }, response) => {
        stream(response);
        if (number > 1) response.end(frame(event(2, "settled")));
        else response.write(frame(event(1)));
        return undefined;
      },
      { eventSilenceMs: 1_000 },
    );
    expect(await seqs(client.events("call_1"))).toEqual([1, 2]);
    expect(broker.requests).toHaveLength(2);
  });

  it("does not take a slow reader for silence", async () => {
    const { broker, client } = await setUp(
      (_request, response) => {
        stream(response);
        response.write(frame(event(1)));
        setTimeout(() => response.end(frame(event(2, "settled"))), 1_200);
        return undefined;
      },
      { eventSilenceMs: 1_000 },
    );
    const events = client.events("call_1");
    expect((await events.next()).value?.seq).toBe(1);
    await new Promise((resolve) => setTimeout(resolve, 2_400));
    expect((await events.next()).value?.seq).toBe(2);
    expect((await events.next()).done).toBe(true);
    expect(broker.requests).toHaveLength(1);
  });

  it("ends the request when its reader leaves or the signal aborts", async () => {
    const { broker, client } = await setUp((_request, response) => {
      stream(response);
      response.write(frame(event(1)));
      return undefined;
    });
    for await (const one of client.events("call_1")) {
      expect(one.seq).toBe(1);
      break;
    }
    await expect.poll(() => broker.openResponses).toBe(0);
    const controller = new AbortController();
    const events = client.events("call_1", { signal: controller.signal });
    await events.next();
    controller.abort();
    await expect(events.next()).rejects.toMatchObject({ code: "aborted" });
    await expect.poll(() => broker.openResponses).toBe(0);
  });
});
