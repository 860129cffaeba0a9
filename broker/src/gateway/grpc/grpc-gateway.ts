/**
 * The gRPC interface: agents (`Calls`, `Catalog`, `Diagnostics`) and runners (`RunnerGateway`) on one port.
 *
 * The rules are those of HTTP (`shared/agent-api.ts`). Health needs no key, reflection needs one.
 */

import {
  Server as GrpcServer,
  type Server,
  ServerCredentials,
  type ServiceDefinition,
  type UntypedServiceImplementation,
} from "@grpc/grpc-js";
import { ReflectionService } from "@grpc/reflection";
import { callsService, catalogService, diagnosticsService, reflectionPackage, runnerGatewayService } from "@toolrunner/proto/services";
import { BATCH_BODY_BYTES_MAX, BODY_BYTES_MAX } from "../../domain/limits.js";
import type { Authenticator } from "../../domain/ports/access.js";
import type { Log } from "../../domain/ports/log.js";
import type { RequestMeter } from "../../domain/ports/meter.js";
import { type AgentOperations, createAgentApi } from "../shared/agent-api.js";
import type { HealthSource } from "../shared/health.js";
import { createRequestIds } from "../shared/request-ids.js";
import { createWaits } from "../shared/waits.js";
import { principalOf, type RpcCall, type RpcParts, refusal, tolerant } from "./agent-rpc.js";
import { callHandlers } from "./call-handlers.js";
import { catalogHandlers, diagnosticsHandlers } from "./catalog-handlers.js";
import { addHealthService } from "./health-service.js";
import type { RunnerGatewayHandlers } from "./runner-gateway.js";

/** Bounds of the server. */
export interface GrpcLimits {
  /** Largest message of agents. Default 8 MiB. */
  readonly messageBytes: number;
  /** Largest message of a batch. Default 16 MiB and 64 KiB: 64 calls with as large arguments as one may have. */
  readonly batchBytes: number;
  /** A connection that is silent this long is asked whether it lives. Default 30 s. */
  readonly keepaliveMs: number;
  /** It is closed when it does not answer for this long. Default 10 s. */
  readonly keepaliveTimeoutMs: number;
  /** A reader of a stream may take nothing for this long. Default 60 s. */
  readonly stallMs: number;
  /** What is still open this long after `close` is cut off. Default 5 s. */
  readonly closeGraceMs: number;
}

const LIMITS: GrpcLimits = {
  messageBytes: BODY_BYTES_MAX,
  batchBytes: BATCH_BODY_BYTES_MAX,
  keepaliveMs: 30_000,
  keepaliveTimeoutMs: 10_000,
  stallMs: 60_000,
  closeGraceMs: 5_000,
};

/** What the gateway is made of. */
export interface GrpcGatewayOptions {
  readonly operations: AgentOperations;
  readonly authenticator: Authenticator;
  /** Of `runner-gateway.ts`. */
  readonly runnerHandlers: RunnerGatewayHandlers;
  readonly health: HealthSource;
  readonly limits?: Partial<GrpcLimits>;
  readonly log: Log;
  /** Told of each request of agents and each refusal. Default: nobody. */
  readonly meter?: RequestMeter | undefined;
}

/** The running gRPC interface. */
export interface GrpcGateway {
  /** Resolves with the port it listens on; 0 picks a free one. Rejects when it cannot listen. */
  listen(address: { readonly host: string; readonly port: number }): Promise<{ readonly port: number }>;
  /** Refuses new calls, answers waits with what is known, ends watches. Idempotent. */
  beginDrain(): void;
  /** Stops listening, drains, and resolves when no stream is left. Idempotent. */
  close(): Promise<void>;
}

/** Makes the gateway; it listens when told to. */
export function createGrpcGateway(options: GrpcGatewayOptions): GrpcGateway {
  const limits: GrpcLimits = { ...LIMITS, ...options.limits };
  const waits = createWaits();
  const { authenticator, log } = options;
  const parts: RpcParts = {
    api: createAgentApi(options.operations, waits),
    waits,
    authenticator,
    log,
    meter: options.meter,
    nextRequestId: createRequestIds(),
  };
  const server = new GrpcServer({
    // Each method has a limit of its own below this one.
    "grpc.max_receive_message_length": Math.max(limits.messageBytes, limits.batchBytes),
    "grpc.max_send_message_length": -1,
    "grpc.keepalive_time_ms": limits.keepaliveMs,
    "grpc.keepalive_timeout_ms": limits.keepaliveTimeoutMs,
    "grpc.keepalive_permit_without_calls": 1,
  });
  const times = { stallMs: limits.stallMs };
  const limitOf = (method: string): number => (method === "createBatch" ? limits.batchBytes : limits.messageBytes);
  server.addService(tolerant(callsService, limitOf), callHandlers(parts, times));
  server.addService(tolerant(catalogService, limitOf), catalogHandlers(parts));
  server.addService(tolerant(diagnosticsService, limitOf), diagnosticsHandlers(parts));
  server.addService(runnerGatewayService, options.runnerHandlers);
  const endHealthWatches = addHealthService(server, options.health, waits, SERVICES);
  addReflection(server, parts);

  let closing: Promise<void> | undefined;
  return {
    async listen({ host, port }) {
      const address = host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
      const bound = await new Promise<number>((resolve, reject) => {
        server.bindAsync(address, ServerCredentials.createInsecure(), (error, boundPort) => (error ? reject(error) : resolve(boundPort)));
      });
      return { port: bound };
    },
    beginDrain: () => waits.beginDrain(),
    close() {
      waits.beginDrain();
      endHealthWatches();
      closing ??= shutDown(server, limits.closeGraceMs);
      return closing;
    },
  };
}

const SERVICES = ["Calls", "Catalog", "Diagnostics", "RunnerGateway"].map((name) => `toolrunner.v1.${name}`);

async function shutDown(server: Server, graceMs: number): Promise<void> {
  let cut: NodeJS.Timeout | undefined;
  await new Promise<void>((resolve) => {
    // An unfinished shutdown is finished by force, and its callback then comes.
    cut = setTimeout(() => server.forceShutdown(), graceMs);
    server.tryShutdown(() => resolve());
  });
  clearTimeout(cut);
}

/** A stream of the reflection service. */
interface ReflectionStream extends RpcCall {
  emit(event: "error", error: Error): boolean;
}

/** Reflection tells what the broker is: nothing does that without a key. */
function addReflection(server: Server, parts: RpcParts): void {
  const guarded = {
    addService(service: ServiceDefinition, handlers: UntypedServiceImplementation): void {
      const entries = Object.entries(handlers).map(([name, handler]) => [
        name,
        (stream: ReflectionStream) => {
          principalOf(parts, stream).then(
            () => Reflect.apply(handler, undefined, [stream]),
            (error: unknown) => stream.emit("error", refusal(parts, "ServerReflectionInfo", parts.nextRequestId(), error).error),
          );
        },
      ]);
      server.addService(service, Object.fromEntries(entries));
    },
  };
  // Its type asks for services with serializers, of which it reads nothing but the descriptors.
  const descriptors = reflectionPackage() as ConstructorParameters<typeof ReflectionService>[0];
  new ReflectionService(descriptors).addToServer(guarded);
}
