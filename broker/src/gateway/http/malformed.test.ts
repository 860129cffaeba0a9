import { once } from "node:events";
import type { Socket } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { FULL_KEY } from "../testing/fake-operations.js";
import { startTestGateway, stopTestGateways } from "../testing/http-kit.js";

afterEach(stopTestGateways);

/** Sends `bytes` and reads until the other side closes. */
async function exchange(socket: Socket, bytes: string): Promise<string> {
  let text = "";
  socket.setEncoding("utf8").on("data", (chunk: string) => {
    text += chunk;
  });
  socket.write(bytes);
  await once(socket, "close");
  return text;
}

const auth = `authorization: Bearer ${FULL_KEY}\r\n`;

describe("what is not HTTP", () => {
  it("is answered with the error object and the end of the connection", async () => {
    const { rawSocket, request } = await startTestGateway();
    const broken = [
      "nonsense\r\n\r\n",
      "GET / HTTP/9.9\r\n\r\n",
      "BREW /v1/calls HTTP/1.1\r\nhost: localhost\r\n\r\n",
      "GET /v1/calls HTTP/1.1\r\nhost localhost\r\n\r\n",
      "GET /v1/calls HTTP/1.1\r\nhost: localhost\r\nx: a\u0000b\r\n\r\n",
      `GET /v1/calls HTTP/1.1\r\nhost: localhost\r\nx: ${"x".repeat(20_000)}\r\n\r\n`,
      `POST /v1/calls HTTP/1.1\r\nhost: localhost\r\n${auth}content-length: 3\r\ncontent-length: 4\r\n\r\n{}`,
      `POST /v1/calls HTTP/1.1\r\nhost: localhost\r\n${auth}content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n{}`,
      `POST /v1/calls HTTP/1.1\r\nhost: localhost\r\n${auth}content-length: -1\r\n\r\n`,
      "\u0016\u0003\u0001\u0002\u0000\u0001\u0000\u0001\u00fc\u0003\u0003",
    ];
    for (const bytes of broken) {
      const answer = await exchange(await rawSocket(), bytes);
      const [head = "", body = ""] = answer.split("\r\n\r\n");
      expect([bytes.slice(0, 60), head.split("\r\n")[0]]).toEqual([bytes.slice(0, 60), "HTTP/1.1 400 Bad Request"]);
      expect(head).toMatch(/connection: close/);
      expect(JSON.parse(body)).toMatchObject({
        type: "error",
        error: { type: "invalid_request_error", code: "body_invalid" },
        request_id: expect.stringMatching(/^req_/),
      });
    }
    expect((await request("GET", "/v1/calls")).status).toBe(200);
  });

  it("in the middle of a body breaks the connection, and reaches no operation", async () => {
    const { rawSocket, operations } = await startTestGateway();
    const socket = await rawSocket();
    const answer = await exchange(
      socket,
      `POST /v1/calls HTTP/1.1\r\nhost: localhost\r\n${auth}content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{"a":\r\nnot a size\r\n`,
    );
    expect(answer === "" || answer.startsWith("HTTP/1.1 400")).toBe(true);
    expect(operations.recorded).toEqual([]);
  });

  it("after a request on the same connection does not get into its answer", async () => {
    const { rawSocket, operations, request } = await startTestGateway();
    const { json } = await request("POST", "/v1/calls", { toolset: "shop", tool: "refund", arguments: {} });
    const socket = await rawSocket();
    let text = "";
    socket.setEncoding("utf8").on("data", (chunk: string) => {
      text += chunk;
    });
    socket.write(`GET /v1/calls/${json.id}/events HTTP/1.1\r\nhost: localhost\r\n${auth}accept: text/event-stream\r\n\r\n`);
    await expect.poll(() => text).toContain("event: requested");
    socket.write("garbage garbage\r\n\r\n");
    await once(socket, "close");
    expect(text).not.toContain("400 Bad Request");
    await expect.poll(() => operations.openWaits).toBe(0);
  });
});

describe("slow clients", () => {
  it("are cut off when headers or a body do not arrive in time (slow loris)", async () => {
    const { rawSocket } = await startTestGateway({ limits: { headersTimeoutMs: 200, requestTimeoutMs: 400 } });
    const started = performance.now();
    const [headers, body] = await Promise.all([
      exchange(await rawSocket(), "GET /v1/calls HTTP/1.1\r\nhost: local"),
      exchange(
        await rawSocket(),
        `POST /v1/calls HTTP/1.1\r\nhost: localhost\r\n${auth}content-type: application/json\r\ncontent-length: 50\r\n\r\n{"a"`,
      ),
    ]);
    expect(performance.now() - started).toBeLessThan(5_000);
    expect(headers).toContain("did not arrive in time");
    expect(body === "" || body.includes("did not arrive in time")).toBe(true);
  });

  it("may keep a connection and use it again", async () => {
    const { rawSocket } = await startTestGateway();
    const socket = await rawSocket();
    let text = "";
    socket.setEncoding("utf8").on("data", (chunk: string) => {
      text += chunk;
    });
    for (let turn = 1; turn <= 3; turn += 1) {
      socket.write("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n");
      await expect.poll(() => text.match(/HTTP\/1\.1 200/g)?.length).toBe(turn);
    }
  });
});

describe("bodies in pieces", () => {
  it("of chunked requests are put together, and counted", async () => {
    const { rawSocket, operations } = await startTestGateway({ limits: { bodyBytes: 1_000 } });
    const head = `POST /v1/calls HTTP/1.1\r\nhost: localhost\r\n${auth}content-type: application/json\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n`;
    const body = Buffer.from('{"toolset":"shop","tool":"ü","arguments":{}}');
    const good = await rawSocket();
    const answer = exchange(good, head);
    // In pieces of one byte: also characters arrive in halves.
    for (const byte of body) good.write(Buffer.concat([Buffer.from("1\r\n"), Buffer.from([byte]), Buffer.from("\r\n")]));
    good.write("0\r\n\r\n");
    expect(await answer).toContain("HTTP/1.1 202");
    expect(operations.recorded.at(-1)?.arguments[1]).toMatchObject({ tool: "ü" });
    const large = await exchange(await rawSocket(), `${head}${`100\r\n${" ".repeat(256)}\r\n`.repeat(5)}0\r\n\r\n`);
    expect(large).toContain("HTTP/1.1 413");
    expect(large).toMatch(/at least \d+ bytes, over the limit of 1000 bytes/);
  });

  it("that end early are no requests", async () => {
    const { rawSocket, operations } = await startTestGateway();
    const socket = await rawSocket();
    socket.write(
      `POST /v1/calls HTTP/1.1\r\nhost: localhost\r\n${auth}content-type: application/json\r\ncontent-length: 500\r\n\r\n{"toolset":"shop"`,
    );
    socket.end();
    socket.resume();
    await once(socket, "close");
    expect(operations.recorded).toEqual([]);
  });
});
