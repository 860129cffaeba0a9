/** Starts gRPC gateways over fake operations on free ports, with clients. */

import { credentials, Metadata, type ServiceError } from "@grpc/grpc-js";
import { ApiError } from "@toolrunner/proto";
import { CallsDefinition, CatalogDefinition, createGrpcClient, DiagnosticsDefinition, type GrpcClient } from "@toolrunner/proto/services";
import { createGrpcGateway, type GrpcGateway, type GrpcGatewayOptions } from "../grpc/grpc-gateway.js";
import {
  createFakeAuthenticator,
  createFakeOperations,
  createRecordingLog,
  type FakeOperations,
  FULL_KEY,
  type RecordingLog,
} from "./fake-operations.js";

/** A gateway that listens, and clients of it. */
export interface TestGrpc {
  readonly gateway: GrpcGateway;
  readonly operations: FakeOperations;
  readonly log: RecordingLog;
  readonly address: string;
  readonly calls: GrpcClient<typeof CallsDefinition>;
  readonly catalog: GrpcClient<typeof CatalogDefinition>;
  readonly diagnostics: GrpcClient<typeof DiagnosticsDefinition>;
}

const running = new Set<() => Promise<void>>();

/** Starts a gateway; `stopTestGrpc` ends it. */
export async function startTestGrpc(options: Partial<GrpcGatewayOptions> = {}, onPort = 0): Promise<TestGrpc> {
  const operations = createFakeOperations();
  const log = createRecordingLog();
  const gateway = createGrpcGateway({
    operations,
    authenticator: createFakeAuthenticator(),
    runnerHandlers: { session: (stream) => stream.end() },
    health: { check: async () => [] },
    log,
    ...options,
  });
  const { port } = await gateway.listen({ host: "127.0.0.1", port: onPort });
  const address = `127.0.0.1:${port}`;
  const insecure = credentials.createInsecure();
  const clients = {
    calls: createGrpcClient(CallsDefinition, address, insecure),
    catalog: createGrpcClient(CatalogDefinition, address, insecure),
    diagnostics: createGrpcClient(DiagnosticsDefinition, address, insecure),
  };
  running.add(async () => {
    for (const client of Object.values(clients)) client.close();
    await gateway.close();
  });
  return { gateway, operations, log, address, ...clients };
}

/** Ends every gateway that was started. */
export async function stopTestGrpc(): Promise<void> {
  const stops = [...running];
  running.clear();
  await Promise.all(stops.map((stop) => stop()));
}

/** Metadata with a key; `undefined`: without one. */
export function withKey(key: string | undefined = FULL_KEY): Metadata {
  const metadata = new Metadata();
  if (key !== undefined && key !== "") metadata.set("authorization", `Bearer ${key}`);
  return metadata;
}

/** What `start` was answered. Rejects with the `ServiceError`. */
export function answered<Res>(start: (callback: (error: ServiceError | null, value?: Res) => void) => unknown): Promise<Res> {
  return new Promise((resolve, reject) => {
    start((error, value) => {
      if (error !== null) reject(error);
      else if (value === undefined) reject(new Error("neither an error nor an answer"));
      else resolve(value);
    });
  });
}

/** The refusal in a `ServiceError`, with its status. */
export async function refusedWith(
  answer: Promise<unknown>,
): Promise<{ readonly status: number; readonly error: ApiError; readonly metadata: Metadata }> {
  try {
    await answer;
  } catch (error) {
    if (error instanceof Error && "metadata" in error && error.metadata instanceof Metadata && "code" in error) {
      const bytes = error.metadata.get("toolrunner-error-bin")[0];
      if (bytes instanceof Buffer) return { status: Number(error.code), error: ApiError.decode(bytes), metadata: error.metadata };
    }
    throw error;
  }
  throw new Error("it was not refused");
}
