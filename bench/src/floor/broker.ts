/** The floor's broker: takes a message, appends it, hands it to the runner, appends the answer, gives it back. */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Server as GrpcServer, Metadata, ServerCredentials, type ServerDuplexStream } from "@grpc/grpc-js";
import { type WebSocket, WebSocketServer } from "ws";
import { brokerUsage } from "../processes/broker-usage.js";
import type { BrokerPlaces, BrokerRole } from "../processes/roles.js";
import { serveRole } from "../processes/serve-role.js";
import type { Appends } from "./appends.js";
import { createExchange, type Exchange } from "./exchange.js";
import { frameOf, numberOf, payloadOf } from "./frame.js";
import { openJetStreamAppends } from "./jetstream-appends.js";
import { floorService } from "./service.js";
import { openSqliteAppends } from "./sqlite-appends.js";

type Stream = ServerDuplexStream<Buffer, Buffer>;

const LOOPBACK = "127.0.0.1";

let appends: Appends | undefined;
let runner: Exchange | undefined;
let calls = 0;

async function carryOut(payload: Buffer): Promise<Buffer> {
  if (appends === undefined || runner === undefined) throw new Error("no ledger, or no runner");
  calls += 1;
  const callId = `call_${calls.toString(36).padStart(26, "0")}`;
  const version = await appends.append(callId, 0, payload);
  const answer = await runner.ask(payload);
  await appends.append(callId, version, answer);
  return answer;
}

/** A failure ends the process: a floor has nobody to tell. */
function settle(job: Promise<void>): void {
  job.catch((error: unknown) => {
    process.stderr.write(`floor broker: ${error instanceof Error ? error.stack : String(error)}\n`);
    process.exit(1);
  });
}

function onCallStream(stream: Stream): void {
  stream.on("data", (frame: Buffer) => {
    settle(
      carryOut(payloadOf(frame)).then((answer) => {
        stream.write(frameOf(numberOf(frame), answer));
      }),
    );
  });
  stream.on("end", () => stream.end());
  stream.on("error", () => undefined);
}

function onRunStream(stream: Stream): void {
  const exchange = createExchange((frame) => stream.write(frame));
  runner = exchange;
  // Tells the runner that it is known.
  stream.sendMetadata(new Metadata());
  stream.on("data", (frame: Buffer) => exchange.received(frame));
  stream.on("end", () => stream.end());
  stream.on("error", () => undefined);
}

function onRunSocket(socket: WebSocket): void {
  const exchange = createExchange((frame) => socket.send(frame));
  runner = exchange;
  socket.on("message", (frame: Buffer) => exchange.received(frame));
}

function onHttpRequest(request: IncomingMessage, response: ServerResponse): void {
  const parts: Buffer[] = [];
  request.on("data", (part: Buffer) => parts.push(part));
  request.on("end", () => {
    settle(
      carryOut(Buffer.concat(parts)).then((answer) => {
        response.writeHead(200, { "content-type": "application/json", "content-length": answer.length });
        response.end(answer);
      }),
    );
  });
}

async function listen(): Promise<BrokerPlaces> {
  const sockets = new WebSocketServer({ noServer: true, perMessageDeflate: false });
  const http = createServer(onHttpRequest);
  http.on("upgrade", (request, socket, head) => sockets.handleUpgrade(request, socket, head, onRunSocket));
  await new Promise<void>((resolve) => http.listen(0, LOOPBACK, resolve));
  const grpc = new GrpcServer();
  grpc.addService(floorService, { call: onCallStream, run: onRunStream });
  const grpcPort = await new Promise<number>((resolve, reject) => {
    grpc.bindAsync(`${LOOPBACK}:0`, ServerCredentials.createInsecure(), (error, port) => (error === null ? resolve(port) : reject(error)));
  });
  const { port } = http.address() as AddressInfo;
  return { http: `http://${LOOPBACK}:${port}`, ws: `ws://${LOOPBACK}:${port}`, grpc: `grpc://${LOOPBACK}:${grpcPort}` };
}

serveRole<BrokerRole>({
  ...brokerUsage(),
  async start({ ledger }) {
    appends = ledger.kind === "sqlite" ? await openSqliteAppends(ledger.dataDir) : await openJetStreamAppends(ledger.url);
    return listen();
  },
  async stop() {
    await appends?.close();
  },
});
