/**
 * The HTTP interface for agents.
 *
 * Owns the server, its life, and what every request meets on its way: Host and Origin, key, scope, body, and the mapping
 * of refusals. Invariants: nothing but the two health addresses answers without a key, which for runners' receipts is in the body; a refusal never carries the text of
 * an unexpected error; payloads and headers never reach the log; no open wait or stream holds up `close`.
 */

import type { Server } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import swagger from "@fastify/swagger";
import { type FastifyInstance, type FastifyReply, type FastifyRequest, fastify } from "fastify";
import { BrokerError } from "../../domain/broker-error.js";
import { BATCH_BODY_BYTES_MAX, BODY_BYTES_MAX } from "../../domain/limits.js";
import type { AgentPrincipal, Authenticator, RunnerPrincipal } from "../../domain/ports/access.js";
import type { Log } from "../../domain/ports/log.js";
import type { MetricsSource, RequestMeter } from "../../domain/ports/meter.js";
import type { RunnerFlush } from "../../wire/operations.js";
import { type AgentApi, type AgentOperations, createAgentApi } from "../shared/agent-api.js";
import { authenticateAgent } from "../shared/credentials.js";
import { describeUnexpected, type Fault, faultBody, faultFrom, faultInList } from "../shared/fault.js";
import { readQuery } from "../shared/form.js";
import { NO_BODY, NO_QUERY } from "../shared/forms.js";
import { type HealthSource, problemsNow } from "../shared/health.js";
import { createOriginCheck, type OriginRules } from "../shared/origin-policy.js";
import { createRequestIds } from "../shared/request-ids.js";
import { requireRunner } from "../shared/runner-credential.js";
import { isRunnerOperation, type OperationName, type RunnerOperationName, requireScope } from "../shared/scopes.js";
import { validTraceparent } from "../shared/traceparent.js";
import { type Caller, createWaits, type Waits } from "../shared/waits.js";
import { jsonOf, type RawBody, readBody } from "./body.js";
import { streamEvents, wantsEventStream } from "./event-stream.js";
import { addFlushRoute } from "./flush-route.js";
import { malformedRequestListener, watchResponses } from "./malformed.js";
import { addMetricsRoute } from "./metrics-route.js";
import { openApiInfo, routeSchema } from "./openapi.js";
import { ROUTES, type Route, SMALL_BODY_BYTES_MAX } from "./routes.js";
import { ALIVE, READY } from "./view-schemas.js";

/** Bounds of the server. */
export interface HttpLimits {
  /** Largest body of calls, toolsets and reconciliations. Default 8 MiB. */
  readonly bodyBytes: number;
  /** Largest body of a batch. Default 16 MiB and 64 KiB: 64 calls with as large arguments as one may have. */
  readonly batchBytes: number;
  /** A client may take this long for a request's headers. Default 10 s. */
  readonly headersTimeoutMs: number;
  /** A client may take this long for a whole request. Default 30 s. */
  readonly requestTimeoutMs: number;
  /** A connection may idle this long between requests. Default 65 s, above what load balancers use. */
  readonly keepAliveTimeoutMs: number;
  /** An event stream gets a comment line this often. Default 15 s. */
  readonly eventCommentMs: number;
  /** A reader of an event stream may take nothing for this long. Default 60 s. */
  readonly eventStallMs: number;
  /** What is still open this long after `close` is cut off. Default 5 s. */
  readonly closeGraceMs: number;
}

const LIMITS: HttpLimits = {
  bodyBytes: BODY_BYTES_MAX,
  batchBytes: BATCH_BODY_BYTES_MAX,
  headersTimeoutMs: 10_000,
  requestTimeoutMs: 30_000,
  keepAliveTimeoutMs: 65_000,
  eventCommentMs: 15_000,
  eventStallMs: 60_000,
  closeGraceMs: 5_000,
};

/** What the gateway is made of. */
export interface HttpGatewayOptions {
  readonly operations: AgentOperations;
  readonly authenticator: Authenticator;
  readonly health: HealthSource;
  /** What `/metrics` answers. Default: there is no such address. */
  readonly metrics?: MetricsSource | undefined;
  /** Takes receipts of pages that close. Default: there is no such address. */
  readonly flush?: RunnerFlush | undefined;
  /** Told of each request and refusal. Default: nobody. */
  readonly meter?: RequestMeter | undefined;
  readonly limits?: Partial<HttpLimits>;
  /** Host and Origin rules; only a development broker has some. */
  readonly dev: OriginRules;
  readonly log: Log;
  /** Of the broker, for `/healthz` and `/openapi.json`. */
  readonly version: string;
}

/** The running HTTP interface. */
export interface HttpGateway {
  /** Resolves with the port it listens on; 0 picks a free one. Rejects when it cannot listen. */
  listen(address: { readonly host: string; readonly port: number }): Promise<{ readonly port: number }>;
  /** For the `upgrade` of runner WebSockets. */
  readonly server: Server;
  /** Refuses new calls, answers waits with what is known, ends event streams. Idempotent. */
  beginDrain(): void;
  /** Stops listening, drains, and resolves when no connection is left. Idempotent. */
  close(): Promise<void>;
}

/** What a route carries for the hooks. */
interface RouteConfig {
  /** Answers without a key. */
  readonly open?: true;
  readonly operation?: OperationName | RunnerOperationName;
  readonly bodyBytesMax?: number;
}

const JSON_CONTENT = "application/json; charset=utf-8";
/** Addresses are bounded by the header limit already; parameters are checked by form. */
const PARAMETER_CHARACTERS_MAX = 65_536;

/** Makes the gateway; it listens when told to. Throws `RangeError` on an allowed origin that is none. */
export function createHttpGateway(options: HttpGatewayOptions): HttpGateway {
  const limits: HttpLimits = { ...LIMITS, ...options.limits };
  const waits = createWaits();
  const api = createAgentApi(options.operations, waits);
  const nextRequestId = createRequestIds();
  const checkOrigin = createOriginCheck(options.dev);
  const { log, meter } = options;
  let busy: (socket: Socket) => boolean = () => false;
  const malformed = malformedRequestListener(
    nextRequestId,
    (socket) => busy(socket),
    (code) => meter?.requestRefused("http", code),
  );

  const app = fastify({
    logger: false,
    return503OnClosing: false,
    forceCloseConnections: "idle",
    genReqId: nextRequestId,
    keepAliveTimeout: limits.keepAliveTimeoutMs,
    requestTimeout: limits.requestTimeoutMs,
    routerOptions: { maxParamLength: PARAMETER_CHARACTERS_MAX },
    http: {
      headersTimeout: limits.headersTimeoutMs,
      connectionsCheckingInterval: Math.min(5_000, Math.ceil(limits.headersTimeoutMs / 4)),
      // Answered by the Host rules instead, with an error object.
      requireHostHeader: false,
    },
    clientErrorHandler: malformed,
    // The router met an address it cannot decode, before any hook ran.
    frameworkErrors: (error, request, reply) => {
      void admit(request, reply).then(
        () => refuse(error, request, reply),
        (refusal: unknown) => refuse(refusal, request, reply),
      );
    },
  });
  busy = watchResponses(app.server);
  const sockets = new Set<Socket>();
  app.server.on("connection", (socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
  });

  async function admit(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    reply.header("x-request-id", request.id);
    if (waits.draining) reply.header("connection", "close");
    checkOrigin({ host: request.headers.host, origin: request.headers.origin });
    const config = configOf(request);
    if (config.open) return;
    const { operation } = config;
    if (operation !== undefined && isRunnerOperation(operation)) {
      request.setDecorator("runner", await requireRunner(options.authenticator, request.headers.authorization));
      return;
    }
    const principal = await authenticateAgent(options.authenticator, request.headers.authorization);
    if (operation === undefined) return;
    requireScope(principal, operation);
    request.setDecorator("principal", principal);
  }

  function known(error: unknown, request: FastifyRequest, reply: FastifyReply): Fault {
    const fault = faultFrom(fromFramework(error));
    meter?.requestRefused("http", fault.code);
    if (fault.unexpected !== undefined && !reply.raw.destroyed) {
      log.error("http_request_failed", { request_id: request.id, route: routeOf(request), ...describeUnexpected(fault.unexpected) });
    }
    return fault;
  }

  function refuse(error: unknown, request: FastifyRequest, reply: FastifyReply): void {
    const fault = known(error, request, reply);
    if (fault.retryAfterSeconds !== undefined) reply.header("retry-after", String(fault.retryAfterSeconds));
    if (fault.http === 401) reply.header("www-authenticate", "Bearer");
    reply
      .code(fault.http)
      .header("content-type", JSON_CONTENT)
      .send(JSON.stringify(faultBody(fault, request.id)));
  }

  app.decorateRequest("principal", null);
  app.decorateRequest("runner", null);
  // Bodies are checked by the forms in shared/, and answers are plain views: the framework's compilers have nothing to do.
  app.setValidatorCompiler(() => () => true);
  app.setSerializerCompiler(() => (data) => JSON.stringify(data));
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("*", async (request: FastifyRequest) => await readBody(request.raw, bodyLimit(request, limits)));
  app.addHook("onRequest", admit);
  app.addHook("onResponse", async (request, reply) => {
    const status = reply.statusCode;
    meter?.httpRequest(request.method, routeOf(request), status, reply.elapsedTime);
    const level = status < 400 ? "debug" : status < 500 ? "info" : "warn";
    log[level]("http_request", {
      request_id: request.id,
      method: request.method,
      route: routeOf(request),
      status,
      duration_ms: Math.round(reply.elapsedTime * 1_000) / 1_000,
    });
  });
  app.setErrorHandler((error, request, reply) => refuse(error, request, reply));
  app.setNotFoundHandler((request) => {
    throw new BrokerError("route_unknown", `There is no ${request.method} at this address: see /openapi.json.`);
  });
  app.register(swagger, openApiInfo(options.version));
  app.register(async (scope) => {
    addRoutes(scope, {
      api,
      waits,
      limits,
      log,
      refused: (error, request, reply) => faultInList(known(error, request, reply), request.id),
    });
    addBrokerRoutes(scope, options, waits);
    if (options.metrics !== undefined) addMetricsRoute(scope, options.metrics);
    if (options.flush !== undefined) addFlushRoute(scope, options.flush);
  });

  let closing: Promise<void> | undefined;
  return {
    server: app.server,
    async listen({ host, port }) {
      await app.listen({ host, port });
      return { port: (app.server.address() as AddressInfo).port };
    },
    beginDrain: () => waits.beginDrain(),
    close() {
      waits.beginDrain();
      closing ??= closeApp(app, sockets, limits.closeGraceMs);
      return closing;
    },
  };
}

async function closeApp(app: FastifyInstance, sockets: ReadonlySet<Socket>, graceMs: number): Promise<void> {
  const cut = setTimeout(() => {
    for (const socket of sockets) socket.destroy();
  }, graceMs);
  // Connections that were made ahead of need and never used do not count as idle to the server.
  for (const socket of sockets) if (socket.bytesRead === 0) socket.destroy();
  try {
    await app.close();
  } finally {
    clearTimeout(cut);
  }
}

/** Addresses that cannot be decoded have no route at all. */
function configOf(request: FastifyRequest): RouteConfig {
  const config: object = request.routeOptions?.config ?? {};
  return config as RouteConfig;
}

function routeOf(request: FastifyRequest): string {
  return request.is404 ? "unknown" : (request.routeOptions?.url ?? "unknown").replaceAll("::", ":");
}

function bodyLimit(request: FastifyRequest, limits: HttpLimits): number {
  const { operation, bodyBytesMax = SMALL_BODY_BYTES_MAX } = configOf(request);
  return Math.min(bodyBytesMax, operation === "createBatch" ? limits.batchBytes : limits.bodyBytes);
}

/** The framework's own refusals, in our words. */
function fromFramework(error: unknown): unknown {
  if (!(error instanceof Error) || error instanceof BrokerError || !("code" in error) || typeof error.code !== "string") return error;
  switch (error.code) {
    case "FST_ERR_BAD_URL":
    case "FST_ERR_MAX_PARAM_LENGTH":
      return new BrokerError("route_unknown", "The address cannot be decoded: see /openapi.json.", { cause: error });
    case "FST_ERR_CTP_INVALID_MEDIA_TYPE":
      return new BrokerError("body_invalid", "The content-type must be application/json.", { cause: error });
    default:
      return error;
  }
}

interface RouteParts {
  readonly api: AgentApi;
  readonly waits: Waits;
  readonly limits: HttpLimits;
  readonly log: Log;
  readonly refused: (error: unknown, request: FastifyRequest, reply: FastifyReply) => object;
}

function callerOf(reply: FastifyReply): Caller {
  return {
    onGone(listener) {
      reply.raw.once("close", listener);
      return () => reply.raw.off("close", listener);
    },
  };
}

function addRoutes(scope: FastifyInstance, parts: RouteParts): void {
  const methods = new Map<string, string[]>();
  for (const route of ROUTES) {
    const config: RouteConfig = { operation: route.operation, bodyBytesMax: route.bodyBytesMax ?? SMALL_BODY_BYTES_MAX };
    scope.route({
      method: route.method,
      url: urlOf(route.path),
      config,
      schema: routeSchema(route),
      handler: (request, reply) => handle(route, parts, request, reply),
    });
    methods.set(route.path, [...(methods.get(route.path) ?? []), route.method, ...(route.method === "GET" ? ["HEAD"] : [])]);
  }
  for (const [url, allowed] of methods) {
    scope.route({
      method: "OPTIONS",
      url: urlOf(url),
      schema: { hide: true },
      handler: (_request, reply) =>
        reply
          .code(204)
          .header("allow", [...allowed, "OPTIONS"].join(", "))
          .send(),
    });
  }
}

/** To the router a colon that begins no parameter is written twice. */
function urlOf(path: string): string {
  return path.replace(/(?<!\/):/g, "::");
}

async function handle(route: Route, parts: RouteParts, request: FastifyRequest, reply: FastifyReply): Promise<void> {
  // One of the two is there: the one that the operation asks for.
  const principal = request.getDecorator<AgentPrincipal>("principal");
  const runner = request.getDecorator<RunnerPrincipal>("runner");
  const params = request.params as Readonly<Record<string, string>>;
  const query = readQuery(request.query as Readonly<Record<string, unknown>>, (route.query ?? NO_QUERY).schema);
  if (route.operation === "listCallEvents" && request.method === "GET" && wantsEventStream(request.headers.accept)) {
    return await follow(parts, principal, params.id ?? "", { ...query, ...resumeFrom(request) }, reply);
  }
  if (route.query === undefined) NO_QUERY.check(query);
  const limit = bodyLimit(request, parts.limits);
  const parsed =
    request.method === "GET" || request.method === "HEAD" ? undefined : jsonOf(request.body as RawBody | undefined, request.headers, limit);
  let body: unknown = parsed;
  if (route.body === undefined) {
    if (parsed !== undefined) NO_BODY.check(parsed);
  } else if (parsed === undefined) {
    if (!route.bodyOptional) {
      throw new BrokerError("body_invalid", "The request has no body: send a JSON object.", {
        details: [{ path: "", expected: "a JSON object", actual: "no body" }],
      });
    }
    body = {};
  }
  const answer = await route.handle(parts.api, {
    principal,
    runner,
    refused: (error) => parts.refused(error, request, reply),
    param: (name) => params[name] ?? "",
    query,
    body,
    traceparent: validTraceparent(singleHeader(request.headers.traceparent)),
    caller: callerOf(reply),
  });
  return await reply.code(answer.status).header("content-type", JSON_CONTENT).send(JSON.stringify(answer.body));
}

function singleHeader(value: string | string[] | undefined): string | undefined {
  return typeof value === "string" ? value : undefined;
}

/** Where a client that lost its stream goes on. */
function resumeFrom(request: FastifyRequest): { readonly after_seq?: number } {
  const last = singleHeader(request.headers["last-event-id"])?.trim();
  if (last === undefined || last === "") return {};
  if (!/^\d{1,10}$/.test(last)) {
    throw new BrokerError("body_invalid", "Last-Event-ID must be the seq of an event.", {
      details: [{ path: "", expected: "a whole number in Last-Event-ID", actual: JSON.stringify(last.slice(0, 64)) }],
    });
  }
  return { after_seq: Number(last) };
}

async function follow(parts: RouteParts, principal: AgentPrincipal, id: string, query: object, reply: FastifyReply): Promise<void> {
  const wait = parts.waits.open(callerOf(reply));
  try {
    const events = await parts.api.watchCall(principal, id, query, wait.signal);
    reply.hijack();
    const requestId = reply.request.id;
    reply.raw.writeHead(200, {
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-store",
      "x-accel-buffering": "no",
      "x-request-id": requestId,
      ...(parts.waits.draining ? { connection: "close" } : {}),
    });
    reply.raw.flushHeaders();
    const end = await streamEvents(reply.raw, events, wait.signal, {
      commentMs: parts.limits.eventCommentMs,
      stallMs: parts.limits.eventStallMs,
    });
    if (typeof end === "object") parts.log.error("http_event_stream_failed", { request_id: requestId, ...describeUnexpected(end.failed) });
    if (end === "stalled") parts.log.info("http_event_stream_stalled", { request_id: requestId });
  } finally {
    wait.close();
  }
}

/** What the broker says about itself. */
function addBrokerRoutes(scope: FastifyInstance, options: HttpGatewayOptions, waits: Waits): void {
  const open: RouteConfig = { open: true };
  scope.get(
    "/healthz",
    { config: open, schema: { operationId: "healthz", summary: "Whether the process runs", security: [], response: { 200: ALIVE } } },
    (_request, reply) => reply.header("cache-control", "no-store").send({ status: "ok", version: options.version }),
  );
  scope.get(
    "/readyz",
    {
      config: open,
      schema: { operationId: "readyz", summary: "Whether the broker serves", security: [], response: { 200: READY, 503: READY } },
    },
    async (_request, reply) => {
      const problems = await problemsNow(options.health, waits.draining);
      const ready = problems.length === 0;
      if (!ready) reply.code(503).header("retry-after", "1");
      return reply.header("cache-control", "no-store").send({ status: ready ? "ready" : "not_ready", problems });
    },
  );
  scope.get(
    "/openapi.json",
    { schema: { operationId: "openapi", summary: "This document", response: { 200: { type: "object", description: "OpenAPI 3.1." } } } },
    (_request, reply) => reply.send(scope.swagger()),
  );
}
