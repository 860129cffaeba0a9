/** The composition root: joins ledger, bus, catalog, access, wire and gateways to a running broker. */
import { CLOSE_CODES, ERROR_CODES, modelText } from "@toolrunner/proto";
import { createAccess } from "../access/access.js";
import { createCallIndex } from "../call-index/call-index.js";
import { createCatalog } from "../catalog/catalog.js";
import { createMetrics } from "../diagnostics/metrics.js";
import type { CallRequest } from "../domain/call/call-state.js";
import type { FaultDetail } from "../domain/fault.js";
import {
  RESULT_CHUNKED_BYTES_MAX,
  RESULT_LIMIT_BYTES_MIN,
  RETENTION_MS_DEFAULT,
  RETENTION_MS_MAX,
  RETENTION_MS_MIN,
} from "../domain/limits.js";
import { createGrpcGateway } from "../gateway/grpc/grpc-gateway.js";
import { createRunnerGateway } from "../gateway/grpc/runner-gateway.js";
import { createHttpGateway } from "../gateway/http/http-gateway.js";
import { createOriginCheck } from "../gateway/shared/origin-policy.js";
import { createWebSocketGateway } from "../gateway/websocket/websocket-gateway.js";
import { DEFAULT_FIGURES } from "../wire/figures.js";
import type { RunnerChannel } from "../wire/operations.js";
import { createWire } from "../wire/wire.js";
import type { Address, BrokerAddresses, BrokerOptions } from "./broker-options.js";
import { closeInOrder, type OpenPart } from "./close-in-order.js";
import { silentLog } from "./logs.js";
import { openStores } from "./open-stores.js";
import { StartError } from "./start-error.js";
import { createSystemIds, systemClock } from "./system.js";

const DRAIN_MS_DEFAULT = 30_000;
/** The end of a broker takes at most this much longer than its drain. */
const CLOSE_MS = 2_000;
/** Clients that are in the middle of a request when everything is answered have this long to go. */
const GATEWAY_CLOSE_MS = 300;

export interface Broker {
  /** The broker's incarnation: new at each start. */
  readonly id: string;
  readonly addresses: BrokerAddresses;
  /** What an acknowledged call survives, in a sentence. */
  readonly durability: string;
  /** What about this set-up is not safe outside a developer's machine, each in a sentence. */
  readonly insecure: readonly string[];
  /** Serves a runner that lives in this process: `channel` is the broker's end of a memory pair. */
  serveRunner(channel: RunnerChannel): void;
  /** Drains for up to `drainMs` (30,000), then stops. Idempotent. */
  stop(options?: { readonly drainMs?: number | undefined }): Promise<void>;
  /** Resolves when the broker has stopped. */
  readonly closed: Promise<void>;
}

/** Starts a broker; rejects with {@link StartError}. */
export async function createBroker(options: BrokerOptions): Promise<Broker> {
  const log = options.log ?? silentLog;
  const version = options.version ?? "0.1.0";
  const clock = systemClock;
  const ids = createSystemIds();
  const brokerId = ids.next("broker");
  const resultBytesMax = checkedResultBytes(options.maxResultBytes ?? RESULT_CHUNKED_BYTES_MAX);
  const retentionMs = checkedRetention(options.retentionMs ?? RETENTION_MS_DEFAULT);
  const figures = { ...DEFAULT_FIGURES, ...options.figures };
  /** What has begun, in the order in which it ends: the parts that stand on others first. */
  const open: OpenPart[] = [];
  const began = (...parts: OpenPart[]): void => void open.unshift(...parts);
  try {
    const stores = await openStores(options.store, { brokerId, clock, log });
    began(
      { part: "ledger", close: () => stores.ledger.close() },
      { part: "bus", close: () => stores.bus.close() },
      { part: "catalog store", close: () => stores.catalog.close() },
      { part: "stores", close: () => stores.close() },
    );
    const metrics = createMetrics({
      version,
      ledger: stores.ledger.description.kind,
      errorCodes: Object.keys(ERROR_CODES),
      closeReasons: Object.fromEntries(Object.entries(CLOSE_CODES).map(([code, { name }]) => [code, name])),
    });
    began({ part: "metrics", close: () => metrics.stop() });
    const { meter } = metrics;
    const catalog = createCatalog({ store: stores.catalog, clock, ids, log });
    began({ part: "catalog", close: () => catalog.close() });
    const access = createAccess({
      store: stores.catalog,
      clock,
      ids,
      staticKeys: options.staticKeys,
      bindingExists: (application, id) =>
        catalog.getBinding(application, id).then(
          () => true,
          () => false,
        ),
      log,
    });
    began({ part: "access", close: () => access.close() });
    const { ledger, indexFile: file, indexLife: life } = stores;
    const index = options.index === false ? undefined : createCallIndex({ ledger, file, life, log });
    began({ part: "index", close: () => index?.stop() });
    await index?.start();

    async function resultFaults(request: CallRequest, json: string): Promise<readonly FaultDetail[]> {
      const resolved = await catalog.resolveTool(request.application, request.toolset, request.tool, request.toolsetVersion);
      return resolved.tool.output_schema === null ? [] : resolved.checkResult(JSON.parse(json));
    }

    const wire = createWire({
      brokerId,
      ledger: stores.ledger,
      bus: stores.bus,
      clock,
      ids,
      log,
      figures,
      catalog,
      authenticator: access.authenticator,
      mayRun: ({ keyId }) => access.isValid(keyId),
      development: options.mode === "dev",
      index,
      retentionMs,
      resultBytesMax,
      modelText,
      resultFaults,
      meter,
    });
    metrics.lookAt(() => wire.readings(), index === undefined ? undefined : () => index.readVersion());
    access.onRevoked(({ keyId }) => wire.sessions.keyRevoked(keyId));
    // Also a wire that did not start has begun: other brokers may have heard of it.
    let drainMs = 0;
    began({ part: "wire", close: () => wire.stop(drainMs) });
    await wire.start();

    const health = {
      async check() {
        const parts = [
          { part: "ledger", check: () => stores.ledger.check() },
          { part: "bus", check: () => stores.bus.check() },
          { part: "catalog", check: () => stores.catalog.check() },
        ];
        const found = await Promise.all(
          parts.map(({ part, check }) =>
            check().then(
              () => undefined,
              (error: unknown) => ({ part, message: error instanceof Error ? error.message : `the ${part} does not answer` }),
            ),
          ),
        );
        return found.filter((problem) => problem !== undefined);
      },
    };
    const operations = { calls: wire.calls, submissions: wire.submissions, runners: wire.runners, catalog, keys: access.keys };
    const dev = { loopbackOnly: options.mode === "dev", allowOrigins: options.allowOrigins ?? [] };
    const http = createHttpGateway({
      operations,
      authenticator: access.authenticator,
      health,
      metrics,
      flush: wire.flush,
      meter,
      dev,
      log,
      version,
      limits: { closeGraceMs: GATEWAY_CLOSE_MS },
    });
    const checkOrigin = createOriginCheck(dev);
    const websocket = createWebSocketGateway({
      sessions: wire.sessions,
      authenticator: access.authenticator,
      originAllowed(origin, host) {
        try {
          checkOrigin({ origin, host });
          return true;
        } catch {
          return false;
        }
      },
      log,
      meter,
    });
    http.server.on("upgrade", (request, socket, head) => websocket.handleUpgrade(request, socket, head));
    const runnerGateway = createRunnerGateway({ sessions: wire.sessions, authenticator: access.authenticator, log, meter });
    const grpc =
      options.grpc === null
        ? undefined
        : createGrpcGateway({
            operations,
            authenticator: access.authenticator,
            runnerHandlers: runnerGateway.handlers,
            health,
            log,
            meter,
            limits: { closeGraceMs: GATEWAY_CLOSE_MS },
          });

    // They end after the wire: what it answers at its end goes out through them.
    const closeGateways = (): Promise<unknown> =>
      Promise.all([websocket.stop({ drainMs: 0 }), runnerGateway.stop({ drainMs: 0 }), http.close(), grpc?.close()]);
    open.splice(1, 0, { part: "gateways", close: closeGateways });
    const httpPort = await listening(http.listen(options.http), "HTTP", options.http);
    const grpcPort =
      grpc === undefined || options.grpc === null ? undefined : await listening(grpc.listen(options.grpc), "gRPC", options.grpc);

    const addresses: BrokerAddresses = {
      http: `http://${authority(options.http.host, httpPort)}`,
      ws: `ws://${authority(options.http.host, httpPort)}/v1/runner`,
      grpc: options.grpc === null || grpcPort === undefined ? null : `grpc://${authority(options.grpc.host, grpcPort)}`,
    };
    log.info("broker_started", { broker_id: brokerId, http: addresses.http, grpc: addresses.grpc, ledger: stores.ledger.description.kind });

    let stopping: Promise<void> | undefined;
    let resolveClosed: () => void = () => undefined;
    const closed = new Promise<void>((resolve) => {
      resolveClosed = resolve;
    });

    async function shutDown(): Promise<void> {
      log.info("broker_stopping", { broker_id: brokerId, drain_ms: drainMs });
      wire.beginDrain();
      http.beginDrain();
      grpc?.beginDrain();
      await closeInOrder(open, drainMs + CLOSE_MS, log);
      log.info("broker_stopped", { broker_id: brokerId });
      resolveClosed();
    }

    return {
      id: brokerId,
      addresses,
      durability: stores.ledger.description.durability,
      insecure: insecurities(options),
      serveRunner(channel) {
        void wire.sessions.serve(channel, { principal: undefined, origin: undefined, remoteAddress: "memory" });
      },
      stop(how = {}) {
        if (stopping === undefined) {
          drainMs = how.drainMs ?? DRAIN_MS_DEFAULT;
          stopping = shutDown();
        }
        return stopping;
      },
      closed,
    };
  } catch (error) {
    await closeInOrder(open, CLOSE_MS, log);
    throw error;
  }
}

function checkedRetention(retentionMs: number | "never"): number | "never" {
  if (retentionMs === "never" || (retentionMs >= RETENTION_MS_MIN && retentionMs <= RETENTION_MS_MAX)) {
    return retentionMs;
  }
  throw new StartError(
    "option_invalid",
    `settled calls cannot be kept for ${retentionMs} ms: choose ${RETENTION_MS_MIN} to ${RETENTION_MS_MAX} ms, or "never" to remove none.`,
  );
}

function checkedResultBytes(bytes: number): number {
  if (Number.isInteger(bytes) && bytes >= RESULT_LIMIT_BYTES_MIN && bytes <= RESULT_CHUNKED_BYTES_MAX) {
    return bytes;
  }
  throw new StartError(
    "option_invalid",
    `results cannot be limited to ${bytes} bytes: choose a whole number from ${RESULT_LIMIT_BYTES_MIN} to ${RESULT_CHUNKED_BYTES_MAX}.`,
  );
}

async function listening(attempt: Promise<{ readonly port: number }>, what: string, address: Address): Promise<number> {
  try {
    return (await attempt).port;
  } catch (cause) {
    const place = authority(address.host, address.port);
    const code = cause instanceof Error && "code" in cause ? String(cause.code) : "";
    if (code === "EADDRINUSE" || (cause instanceof Error && /EADDRINUSE|address already in use|No address added/i.test(cause.message))) {
      throw new StartError(
        "port_in_use",
        `${what} cannot listen on ${place}: the port is in use. Stop what uses it, or choose another port (0 picks a free one).`,
        { cause },
      );
    }
    throw new StartError(
      "address_unusable",
      `${what} cannot listen on ${place}: ${cause instanceof Error ? cause.message : String(cause)}. Choose another host or port.`,
      { cause },
    );
  }
}

function authority(host: string, port: number): string {
  return `${host.includes(":") ? `[${host}]` : host}:${port}`;
}

function insecurities(options: BrokerOptions): string[] {
  const found: string[] = ["HTTP, WebSocket and gRPC are not encrypted: put TLS in front of them outside this machine."];
  if (options.mode === "dev") {
    found.push("Development keys: the runner key serves any binding and may name any subject.");
  }
  if (options.store.kind === "nats" && !options.store.url.startsWith("tls://")) {
    found.push("The connection to NATS is not encrypted.");
  }
  return found;
}
