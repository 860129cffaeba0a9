import type { Socket } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import type { CallEventView } from "../../domain/call-view.js";
import { FULL_KEY } from "../testing/fake-operations.js";
import { errorOf, startTestGateway, stopTestGateways, type TestGateway } from "../testing/http-kit.js";
import { wantsEventStream } from "./event-stream.js";

afterEach(stopTestGateways);

const headers = { authorization: `Bearer ${FULL_KEY}`, accept: "text/event-stream" };

async function openCall(gateway: TestGateway): Promise<string> {
  return String((await gateway.request("POST", "/v1/calls", { toolset: "shop", tool: "refund", arguments: {} })).json.id);
}

/** Everything that a socket was sent so far. */
function collect(socket: Socket): () => string {
  let text = "";
  socket.setEncoding("utf8").on("data", (chunk: string) => {
    text += chunk;
  });
  return () => text;
}

describe("a call's events over HTTP", () => {
  it("are listed when no stream is asked for", async () => {
    const gateway = await startTestGateway();
    const id = await openCall(gateway);
    gateway.operations.emit(id, "progress", { text: "half" });
    const list = await gateway.request("GET", `/v1/calls/${id}/events?after_seq=1`);
    expect(list.json).toEqual({
      data: [{ type: "event", call_id: id, seq: 2, at: expect.any(String), event: "progress", data: { text: "half" } }],
      next_page: null,
    });
  });

  it("are streamed as they come, each with id, name and object, until the call has settled", async () => {
    const gateway = await startTestGateway();
    const id = await openCall(gateway);
    const response = await fetch(`${gateway.url}/v1/calls/${id}/events`, { headers });
    expect([response.status, response.headers.get("content-type"), response.headers.get("cache-control")]).toEqual([
      200,
      "text/event-stream; charset=utf-8",
      "no-store",
    ]);
    expect(response.headers.get("x-request-id")).toMatch(/^req_/);
    gateway.operations.emit(id, "progress", { text: "one\ntwo ü" });
    gateway.operations.settle(id, 1);
    const frames = (await response.text()).split("\n\n").filter((frame) => frame !== "");
    expect(frames).toHaveLength(3);
    const [idLine, eventLine, dataLine, ...rest] = frames[1]?.split("\n") ?? [];
    expect([idLine, eventLine, rest]).toEqual(["id: 2", "event: progress", []]);
    expect(JSON.parse(dataLine?.slice("data: ".length) ?? "")).toEqual({
      type: "event",
      call_id: id,
      seq: 2,
      at: expect.any(String),
      event: "progress",
      data: { text: "one\ntwo ü" },
    });
    expect(frames[2]).toMatch(/^id: 3\nevent: settled\n/);
  });

  it("go on after Last-Event-ID, also when that was the last", async () => {
    const gateway = await startTestGateway();
    const id = await openCall(gateway);
    gateway.operations.settle(id, 1);
    const rest = await fetch(`${gateway.url}/v1/calls/${id}/events`, { headers: { ...headers, "last-event-id": "1" } });
    expect(await rest.text()).toMatch(/^id: 2\nevent: settled\n/);
    const none = await fetch(`${gateway.url}/v1/calls/${id}/events`, { headers: { ...headers, "last-event-id": "2" } });
    expect([none.status, await none.text()]).toEqual([200, ""]);
    const fresh = await fetch(`${gateway.url}/v1/calls/${id}/events?after_seq=2`, { headers: { ...headers, "last-event-id": "" } });
    expect(await fresh.text()).toBe("");
  });

  it("are refused as JSON for an unknown call, a bad Last-Event-ID, a missing scope, and while the broker drains", async () => {
    const gateway = await startTestGateway();
    const unknown = await gateway.request("GET", "/v1/calls/call_none/events", undefined, { accept: "text/event-stream" });
    expect([unknown.status, errorOf(unknown).code, unknown.headers.get("content-type")]).toEqual([
      404,
      "not_found",
      "application/json; charset=utf-8",
    ]);
    const id = await openCall(gateway);
    for (const last of ["x", "-1", "1.5", "99999999999", "1e3"]) {
      const bad = await gateway.request("GET", `/v1/calls/${id}/events`, undefined, { accept: "text/event-stream", "last-event-id": last });
      expect([last, bad.status, errorOf(bad).code]).toEqual([last, 400, "body_invalid"]);
    }
    const forbidden = await gateway.request("GET", `/v1/calls/${id}/events`, undefined, { ...headers, authorization: "Bearer only:admin" });
    expect(forbidden.status).toBe(403);
    gateway.gateway.beginDrain();
    expect((await gateway.request("GET", `/v1/calls/${id}/events`, undefined, { accept: "text/event-stream" })).status).toBe(503);
    expect(gateway.operations.openWaits).toBe(0);
  });

  it("carry a comment line while nothing happens", async () => {
    const gateway = await startTestGateway({ limits: { eventCommentMs: 20 } });
    const id = await openCall(gateway);
    const socket = await gateway.rawSocket();
    const received = collect(socket);
    socket.write(
      `GET /v1/calls/${id}/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer ${FULL_KEY}\r\naccept: text/event-stream\r\n\r\n`,
    );
    await expect.poll(received).toMatch(/: still here\n\n[^:]*: still here\n\n/);
  });

  it("end when the broker drains, and when the client goes", async () => {
    const gateway = await startTestGateway();
    const id = await openCall(gateway);
    const controller = new AbortController();
    const gone = await fetch(`${gateway.url}/v1/calls/${id}/events`, { headers, signal: controller.signal });
    expect(gone.status).toBe(200);
    await expect.poll(() => gateway.operations.openWaits).toBe(1);
    controller.abort();
    await expect.poll(() => gateway.operations.openWaits).toBe(0);
    const drained = await fetch(`${gateway.url}/v1/calls/${id}/events`, { headers });
    await expect.poll(() => gateway.operations.openWaits).toBe(1);
    gateway.gateway.beginDrain();
    expect(await drained.text()).toMatch(/^id: 1\n/);
    await expect.poll(() => gateway.operations.openWaits).toBe(0);
  });

  it("are taken from the operation no faster than the reader takes them, and a reader that stops is cut off", async () => {
    let pulled = 0;
    let finished = false;
    const gateway = await startTestGateway({ limits: { eventStallMs: 300 } });
    const id = await openCall(gateway);
    const filler = "x".repeat(65_536);
    Object.assign(gateway.operations.calls, {
      async *watchEvents(): AsyncGenerator<CallEventView> {
        try {
          for (;;) {
            pulled += 1;
            yield { type: "event", call_id: id, seq: pulled, at: "2026-01-01T00:00:00.000Z", event: "progress", data: { filler } };
          }
        } finally {
          finished = true;
        }
      },
    });
    const socket = await gateway.rawSocket();
    socket.pause();
    socket.write(
      `GET /v1/calls/${id}/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer ${FULL_KEY}\r\naccept: text/event-stream\r\n\r\n`,
    );
    await expect.poll(() => finished, { timeout: 10_000 }).toBe(true);
    // What kernel buffers of both sides hold, and no more.
    expect(pulled).toBeLessThan(400);
    expect(gateway.log.lines.map(({ event }) => event)).toContain("http_event_stream_stalled");
  });

  it("break off without a proper end when the operation fails, and the log knows why", async () => {
    const gateway = await startTestGateway();
    const id = await openCall(gateway);
    Object.assign(gateway.operations.calls, {
      // biome-ignore lint/correctness/useYield: it fails before it has anything to give.
      async *watchEvents(): AsyncGenerator<CallEventView> {
        throw new Error("secret cause");
      },
    });
    const response = await fetch(`${gateway.url}/v1/calls/${id}/events`, { headers });
    await expect(response.text()).rejects.toThrow();
    await expect
      .poll(() => gateway.log.lines.find(({ event }) => event === "http_event_stream_failed")?.fields.error)
      .toBe("Error: secret cause");
  });
});

describe("asking for a stream", () => {
  it("is naming its type in Accept, with whatever parameters but q=0", () => {
    for (const accept of ["text/event-stream", "application/json, text/event-stream;q=0.5", "TEXT/EVENT-STREAM; charset=utf-8"]) {
      expect([accept, wantsEventStream(accept)]).toEqual([accept, true]);
    }
    for (const accept of [undefined, "", "*/*", "text/*", "application/json", "text/event-stream;q=0", "text/event-stream-x"]) {
      expect([accept, wantsEventStream(accept)]).toEqual([accept, false]);
    }
  });
});
