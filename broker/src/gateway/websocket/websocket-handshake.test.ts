import { connect as connectTcp } from "node:net";
import { SUBPROTOCOLS } from "@toolrunner/proto";
import { describe, expect, it } from "vitest";
import { WebSocket } from "ws";
import { authenticator, clientFrame, dial, handshake, PRINCIPAL, rawClient, received, startGateway } from "./testing/gateway-kit.js";

describe("WebSocket gateway: handshake", () => {
  it("lets a runner with a valid key in, and tells the session who and where it is", async () => {
    const started = await startGateway();
    const accepted = started.next();
    const socket = dial(started.url, "binary", { authorization: "Bearer good", origin: "https://app.example" });
    const { channel, connection } = await accepted;
    expect(connection).toEqual({ principal: PRINCIPAL, origin: "https://app.example", remoteAddress: "127.0.0.1" });
    expect(channel.transport).toBe("websocket_binary");
    socket.terminate();
  });

  it("lets a runner without a header in: its credential comes in the hello", async () => {
    const started = await startGateway();
    const accepted = started.next();
    const socket = dial(started.url, "json");
    const { channel, connection } = await accepted;
    expect(connection).toEqual({ principal: undefined, origin: undefined, remoteAddress: "127.0.0.1" });
    expect(channel.transport).toBe("websocket_json");
    socket.terminate();
  });

  it.each(["Bearer wrong", "Bearer ", "Basic Z29vZA==", "good", `Bearer ${"x".repeat(5_000)}`])(
    "answers 401 to the header %j, without repeating it",
    async (authorization) => {
      const started = await startGateway();
      const { status, headers, body } = await handshake(started.url, [SUBPROTOCOLS.binary], { authorization });
      expect(status).toBe(401);
      expect(headers).toMatchObject({ "www-authenticate": "Bearer", connection: "close" });
      expect(body).toMatchObject({ type: "error", error: { type: "authentication_error" }, request_id: expect.stringMatching(/^req_/) });
      expect(JSON.stringify(body) + started.lines.join()).not.toContain("wrong");
      expect(started.served).toEqual([]);
    },
  );

  it.each([[[]], [["chat"]], [["toolrunner.v2.proto"]]])(
    "answers 400 to the subprotocols %j and names the ones it takes",
    async (protocols) => {
      const started = await startGateway();
      const { status, body } = await handshake(started.url, protocols);
      expect(status).toBe(400);
      expect(body.error?.code).toBe("upgrade_invalid");
      expect(body.error?.message).toContain("toolrunner.v1.proto or toolrunner.v1.json");
    },
  );

  it("takes the first subprotocol of the client's list that it knows", async () => {
    const started = await startGateway();
    for (const [offered, chosen] of [
      [["chat", SUBPROTOCOLS.json, SUBPROTOCOLS.binary], SUBPROTOCOLS.json],
      [[SUBPROTOCOLS.binary, SUBPROTOCOLS.json], SUBPROTOCOLS.binary],
    ] as const) {
      const socket = new WebSocket(started.url, [...offered]);
      await new Promise((resolve) => socket.once("open", resolve));
      expect(socket.protocol).toBe(chosen);
      socket.terminate();
    }
  });

  it.each(["token", "key", "access_token", "TOKEN"])(
    "answers 400 to a credential in the address (%s), and does not repeat it (A4)",
    async (name) => {
      const started = await startGateway();
      const { status, body } = await handshake(`${started.url}?${name}=s3cret`, [SUBPROTOCOLS.binary], { authorization: "Bearer good" });
      expect(status).toBe(400);
      expect(body.error?.message).toContain(name.toLowerCase());
      expect(JSON.stringify(body) + started.lines.join()).not.toContain("s3cret");
    },
  );

  it("answers 400 to any other query parameter, and 404 to another path", async () => {
    const started = await startGateway();
    expect(await handshake(`${started.url}?x=1`, [SUBPROTOCOLS.binary])).toMatchObject({
      status: 400,
      body: { error: { code: "field_unknown" } },
    });
    for (const path of ["/", "/v1/runner/", "/v1/runners", "/v1/Runner", "/v1/runner%00"]) {
      const url = started.url.replace("/v1/runner", path);
      expect(await handshake(url, [SUBPROTOCOLS.binary])).toMatchObject({ status: 404, body: { error: { code: "route_unknown" } } });
    }
  });

  it("answers 403 to an origin that may not pass, before it looks at the key", async () => {
    let asked = 0;
    const started = await startGateway({
      originAllowed: (origin, host) => origin === undefined && host !== undefined,
      authenticator: {
        ...authenticator,
        runner: (credential) => {
          asked += 1;
          return authenticator.runner(credential);
        },
      },
    });
    const headers = { origin: "https://evil.example", authorization: "Bearer good" };
    expect(await handshake(started.url, [SUBPROTOCOLS.binary], headers)).toMatchObject({
      status: 403,
      body: { error: { type: "permission_error", code: "origin_not_permitted" } },
    });
    expect(asked).toBe(0);
    expect((await handshake(started.url, [SUBPROTOCOLS.binary])).status).toBe(101);
  });

  it("answers 500 when keys cannot be checked, and says nothing of why", async () => {
    const started = await startGateway({
      authenticator: { ...authenticator, runner: () => Promise.reject(new Error("the store at /var/secret is gone")) },
    });
    const { status, body } = await handshake(started.url, [SUBPROTOCOLS.binary], { authorization: "Bearer good" });
    expect(status).toBe(500);
    expect(JSON.stringify(body)).not.toContain("secret");
    expect(started.lines.join()).toContain("runner_upgrade_failed");
  });

  it("answers what ws itself refuses with the same error object", async () => {
    const started = await startGateway();
    const socket = connectTcp(started.port, "127.0.0.1");
    socket.write(
      `GET /v1/runner HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Protocol: ${SUBPROTOCOLS.json}\r\n\r\n`,
    );
    const answer = (await received(socket, (bytes) => bytes.includes("}}") || bytes.includes("_id"))).toString();
    expect(answer).toMatch(/^HTTP\/1\.1 400 Bad Request\r\n/);
    expect(answer).toContain('"code":"upgrade_invalid"');
    socket.destroy();
  });

  it("survives a client that leaves while its key is checked", async () => {
    let release: () => void = () => {};
    const asked = new Promise<void>((resolveAsked) => {
      void startGateway({
        authenticator: {
          ...authenticator,
          runner: () =>
            new Promise((resolve) => {
              release = () => resolve(PRINCIPAL);
              resolveAsked();
            }),
        },
      }).then(async (started) => {
        const { socket } = await rawClient(started.port, "Authorization: Bearer good\r\n");
        await asked;
        socket.resetAndDestroy();
        await new Promise((resolve) => socket.once("close", resolve));
      });
    });
    await asked;
    await new Promise((resolve) => setTimeout(resolve, 50));
    release();
    await new Promise((resolve) => setImmediate(resolve));
    const other = await startGateway();
    expect((await handshake(other.url, [SUBPROTOCOLS.binary])).status).toBe(101);
  });

  it("loses no frame that a client sends in the same packet as its handshake", async () => {
    const started = await startGateway();
    const accepted = started.next();
    const socket = connectTcp(started.port, "127.0.0.1");
    await new Promise((resolve) => socket.once("connect", resolve));
    const handshakeText =
      "GET /v1/runner HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n" +
      `Sec-WebSocket-Version: 13\r\nAuthorization: Bearer good\r\nSec-WebSocket-Protocol: ${SUBPROTOCOLS.binary}\r\n\r\n`;
    socket.write(Buffer.concat([Buffer.from(handshakeText), clientFrame(0x82, Buffer.from("12020807", "hex"))]));
    const { channel } = await accepted;
    for await (const frame of channel) {
      expect(frame).toEqual({ frame: { $case: "claim", value: { slots: 7 } } });
      break;
    }
    socket.destroy();
  });
});
