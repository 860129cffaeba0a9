/** For tests: a real gRPC server and a real WebSocket server whose sessions a fake broker plays. */
import type { AddressInfo } from "node:net";
import { Server, ServerCredentials, type ServerDuplexStream } from "@grpc/grpc-js";
import { createWebSocketChannel, encodingOfSubprotocol } from "@toolrunner/proto";
import { createGrpcStreamChannel, runnerGatewayService } from "@toolrunner/proto/services";
import { WebSocketServer } from "ws";
import { createFakeBroker, type FakeBroker } from "../testing.js";

export interface SocketBroker {
  readonly broker: FakeBroker;
  readonly url: string;
  /** Stops reading the connections that there are. */
  pause(): void;
  stop(): Promise<void>;
}

/** Listens for gRPC on a free port of the loopback interface. */
export async function grpcBroker(): Promise<SocketBroker> {
  const broker = createFakeBroker();
  const server = new Server();
  const streams = new Set<ServerDuplexStream<Uint8Array, Uint8Array>>();
  server.addService(runnerGatewayService, {
    session: (stream: ServerDuplexStream<Uint8Array, Uint8Array>) => {
      streams.add(stream);
      const credential = String(stream.metadata.get("authorization")[0] ?? "").replace(/^Bearer /, "");
      broker.accept(createGrpcStreamChannel(stream, { side: "broker" }), { credential });
    },
  });
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, bound) =>
      error === null ? resolve(bound) : reject(error),
    );
  });
  return {
    broker,
    url: `grpc://127.0.0.1:${port}`,
    pause() {
      for (const stream of streams) stream.pause();
    },
    stop: async () => server.forceShutdown(),
  };
}

/** Listens for WebSockets on a free port; `refuse` answers upgrades with this status instead. */
export async function webSocketBroker(refuse?: { readonly status: number; readonly retryAfterSeconds?: number }): Promise<SocketBroker> {
  const broker = createFakeBroker();
  const server = new WebSocketServer({
    host: "127.0.0.1",
    port: 0,
    path: "/v1/runner",
    handleProtocols: (offered) => [...offered][0] ?? false,
    ...(refuse === undefined
      ? {}
      : {
          verifyClient: (_info: unknown, answer: (ok: boolean, status: number, message: string, headers: Record<string, string>) => void) =>
            answer(false, refuse.status, "no", { "retry-after": String(refuse.retryAfterSeconds ?? 0) }),
        }),
  });
  server.on("connection", (socket, request) => {
    const encoding = encodingOfSubprotocol(socket.protocol) ?? "binary";
    const credential = String(request.headers.authorization ?? "").replace(/^Bearer /, "");
    broker.accept(createWebSocketChannel(socket, { side: "broker", encoding }), { credential, sever: () => socket.terminate() });
  });
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    broker,
    url: `ws://127.0.0.1:${port}`,
    pause() {
      for (const socket of server.clients) socket.pause();
    },
    stop: () =>
      new Promise((resolve) => {
        for (const socket of server.clients) socket.terminate();
        server.close(() => resolve());
      }),
  };
}
