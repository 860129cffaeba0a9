/** A gateway on a real server, and clients that keep and break the rules. */
import { createHash, randomBytes } from "node:crypto";
import { createServer, type Server } from "node:http";
import { type AddressInfo, connect as connectTcp, type Socket } from "node:net";
import { type BrokerFrame, type FrameChannel, type FrameEncoding, type RunnerFrame, SUBPROTOCOLS } from "@toolrunner/proto";
import { afterEach } from "vitest";
import { WebSocket } from "ws";
import type { Authenticator, RunnerPrincipal } from "../../../domain/ports/access.js";
import type { Log } from "../../../domain/ports/log.js";
import type { RunnerConnection } from "../../../wire/operations.js";
import { createWebSocketGateway, type WebSocketGatewayOptions } from "../websocket-gateway.js";

type RunnerChannel = FrameChannel<RunnerFrame, BrokerFrame>;
/** What the session logic was given. */
export interface Served {
  readonly channel: RunnerChannel;
  readonly connection: RunnerConnection;
}

/** Whom the key `good` stands for. */
export const PRINCIPAL: RunnerPrincipal = {
  kind: "runner",
  keyId: "key_1",
  application: "default",
  binding: "shop",
  mayNameSubject: false,
};
/** Knows one key, `good`. */
export const authenticator: Authenticator = {
  agent: () => Promise.resolve(undefined),
  runner: (credential) => Promise.resolve(credential === "good" ? PRINCIPAL : undefined),
};

const stops: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
});

async function listen(server: Server): Promise<number> {
  const sockets = new Set<Socket>();
  server.on("connection", (socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  stops.push(async () => {
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  });
  return (server.address() as AddressInfo).port;
}

/** A gateway on a port of its own; sessions stay open until the test or the peer closes their channel. */
export async function startGateway(options: Partial<WebSocketGatewayOptions> = {}) {
  const served: Served[] = [];
  const waiting: ((served: Served) => void)[] = [];
  const lines: string[] = [];
  const note = (event: string, fields?: object): void => {
    lines.push(`${event} ${JSON.stringify(fields ?? {})}`);
  };
  const log: Log = { debug: note, info: note, warn: note, error: note };
  const gateway = createWebSocketGateway({
    sessions: {
      async serve(channel, connection) {
        const entry = { channel, connection };
        served.push(entry);
        waiting.shift()?.(entry);
        await channel.closed;
      },
    },
    authenticator,
    originAllowed: () => true,
    log,
    ...options,
  });
  const server = createServer();
  server.on("upgrade", gateway.handleUpgrade);
  const port = await listen(server);
  return {
    gateway,
    served,
    lines,
    port,
    url: `ws://127.0.0.1:${port}/v1/runner`,
    next: (): Promise<Served> => new Promise((resolve) => waiting.push(resolve)),
  };
}

/** What {@link startGateway} resolves with. */
export type Started = Awaited<ReturnType<typeof startGateway>>;

/** A well-behaved client; its errors are ignored. */
export function dial(url: string, encoding: FrameEncoding = "binary", headers: Record<string, string> = {}): WebSocket {
  const socket = new WebSocket(url, [SUBPROTOCOLS[encoding]], { headers, perMessageDeflate: false });
  socket.on("error", () => {});
  return socket;
}

/** Status, headers and JSON body of an upgrade that was refused; the status only when it was not. */
export async function handshake(url: string, protocols: string[], headers: Record<string, string> = {}) {
  return new Promise<{ status: number; headers: Record<string, unknown>; body: { error?: { code: string; message: string } } }>(
    (resolve) => {
      const socket = new WebSocket(url, protocols, { headers });
      socket.on("error", () => {});
      socket.once("open", () => {
        socket.terminate();
        resolve({ status: 101, headers: {}, body: {} });
      });
      socket.once("unexpected-response", (_, response) => {
        let text = "";
        response.setEncoding("utf8");
        response.on("data", (part: string) => {
          text += part;
        });
        response.on("end", () =>
          resolve({ status: response.statusCode ?? 0, headers: response.headers, body: JSON.parse(text) as object }),
        );
      });
    },
  );
}

/** A client that speaks WebSocket by hand, to break its rules. */
export async function rawClient(port: number, extra = "") {
  const socket = connectTcp(port, "127.0.0.1");
  await new Promise((resolve) => socket.once("connect", resolve));
  const key = randomBytes(16).toString("base64");
  socket.write(
    `GET /v1/runner HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: ${key}\r\n` +
      `Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: ${SUBPROTOCOLS.binary}\r\n${extra}\r\n`,
  );
  const accept = createHash("sha1").update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
  return { socket, accept };
}

/** One masked frame from a client. */
export function clientFrame(opcode: number, payload: Buffer, declaredLength = payload.length): Buffer {
  if (declaredLength <= 125) return Buffer.concat([Buffer.from([opcode, 0x80 | declaredLength]), Buffer.alloc(4), payload]);
  const length = Buffer.alloc(9);
  length.writeUInt8(0x80 | 127, 0);
  length.writeBigUInt64BE(BigInt(declaredLength), 1);
  return Buffer.concat([Buffer.from([opcode]), length, Buffer.alloc(4), payload]);
}

/** Resolves with all bytes so far when they satisfy `wanted`; rejects when the connection closes first. */
export async function received(socket: Socket, wanted: (bytes: Buffer) => boolean): Promise<Buffer> {
  let bytes = Buffer.alloc(0);
  return new Promise((resolve, reject) => {
    const look = (part: Buffer): void => {
      bytes = Buffer.concat([bytes, part]);
      if (!wanted(bytes)) return;
      socket.off("data", look);
      resolve(bytes);
    };
    socket.on("data", look);
    socket.once("close", () => reject(new Error(`the connection closed after ${bytes.length} bytes`)));
  });
}
