/** A listening broker whose sessions a case plays by hand: WebSocket in either encoding, or gRPC. */
import type { AddressInfo } from "node:net";
import { Server, ServerCredentials, type ServerDuplexStream } from "@grpc/grpc-js";
import { createWebSocketChannel, encodingOfSubprotocol, SUBPROTOCOLS } from "@toolrunner/proto";
import { createGrpcStreamChannel, runnerGatewayService } from "@toolrunner/proto/services";
import { createFakeBroker, type FakeBroker } from "@toolrunner/runner-sdk/testing";
import { type WebSocket, WebSocketServer } from "ws";
import { startTcpProxy } from "../kit/tcp-proxy.js";

/** How the runner reaches the broker. */
export type Wire = "websocket-binary" | "websocket-json" | "grpc";

export interface ScriptedBroker {
  readonly broker: FakeBroker;
  readonly url: string;
  /** Sends bytes or text that no codec made, on the newest connection; undefined where the transport has none. */
  readonly sendRaw: ((data: Uint8Array | string) => void) | undefined;
  /** Frames travel as JSON. */
  readonly json: boolean;
  /** Breaks every connection without a close. */
  cut(): void;
  close(): Promise<void>;
}

export async function startScriptedBroker(wire: Wire): Promise<ScriptedBroker> {
  return wire === "grpc" ? grpcBroker() : webSocketBroker(wire === "websocket-json" ? SUBPROTOCOLS.json : SUBPROTOCOLS.binary);
}

async function webSocketBroker(subprotocol: string): Promise<ScriptedBroker> {
  const broker = createFakeBroker();
  let newest: WebSocket | undefined;
  const server = new WebSocketServer({
    host: "127.0.0.1",
    port: 0,
    path: "/v1/runner",
    // Others than the one under test are not known here, as with a broker that speaks one encoding.
    handleProtocols: (offered) => (offered.has(subprotocol) ? subprotocol : false),
  });
  server.on("connection", (socket, request) => {
    newest = socket;
    const credential = String(request.headers.authorization ?? "").replace(/^Bearer /, "");
    const encoding = encodingOfSubprotocol(socket.protocol) ?? "binary";
    broker.accept(createWebSocketChannel(socket, { side: "broker", encoding }), { credential, sever: () => socket.terminate() });
  });
  await new Promise((resolve) => server.once("listening", resolve));
  return {
    broker,
    url: `ws://127.0.0.1:${(server.address() as AddressInfo).port}/v1/runner`,
    sendRaw: (data) => newest?.send(data),
    json: subprotocol === SUBPROTOCOLS.json,
    cut: () => {
      for (const socket of server.clients) socket.terminate();
    },
    close: () =>
      new Promise((resolve) => {
        for (const socket of server.clients) socket.terminate();
        server.close(() => resolve());
      }),
  };
}

async function grpcBroker(): Promise<ScriptedBroker> {
  const broker = createFakeBroker();
  const server = new Server();
  server.addService(runnerGatewayService, {
    session: (stream: ServerDuplexStream<Uint8Array, Uint8Array>) => {
      const credential = String(stream.metadata.get("authorization")[0] ?? "").replace(/^Bearer /, "");
      broker.accept(createGrpcStreamChannel(stream, { side: "broker" }), { credential });
    },
  });
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, bound) =>
      error === null ? resolve(bound) : reject(error),
    );
  });
  // A stream that is destroyed here is ended over there; only a connection can break.
  const proxy = await startTcpProxy(port);
  return {
    broker,
    url: `grpc://127.0.0.1:${proxy.port}`,
    sendRaw: undefined,
    json: false,
    cut: () => proxy.cut(),
    close: async () => {
      await proxy.close();
      server.forceShutdown();
    },
  };
}
