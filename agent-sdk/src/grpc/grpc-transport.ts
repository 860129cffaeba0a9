/** The gRPC interface. Calls are created over one stream; everything else is a unary call. Node only. */

import {
  type CallOptions,
  type ClientReadableStream,
  type ClientUnaryCall,
  Metadata,
  type ServiceError,
  type StatusObject,
  status,
} from "@grpc/grpc-js";
import type * as proto from "@toolrunner/proto";
import { CallsDefinition, CatalogDefinition, createGrpcClient, DiagnosticsDefinition, parseGrpcUrl } from "@toolrunner/proto/services";
import { abortedError, reasonOf, ToolRunnerError } from "../errors.js";
import type { AgentConnection, AgentTransport, OperationAnswers, OperationName, OperationRequest, SendOptions } from "../transport.js";
import type { Call, CallEvent } from "../types.js";
import { createCallStream } from "./create-stream.js";
import { refusalFrom, refusalIn } from "./grpc-refusal.js";
import { bindingView, callView, createCallMessage, eventView, fieldsOf, limitsMessage, runnerView, toolsetView } from "./grpc-views.js";

/** Options of {@link connectGrpc}. */
export interface GrpcTransportOptions {
  /** For `grpcs://`: roots to trust, in PEM. Default: the system's. */
  readonly rootCertificates?: Buffer;
}

const MESSAGE_BYTES_MAX = 64 * 1_048_576;

const CHANNEL_OPTIONS = {
  "grpc.max_receive_message_length": MESSAGE_BYTES_MAX,
  "grpc.keepalive_time_ms": 30_000,
  "grpc.keepalive_timeout_ms": 10_000,
  // The client repeats by itself, with the rules of the interface.
  "grpc.enable_retries": 0,
  "grpc.initial_reconnect_backoff_ms": 200,
  "grpc.min_reconnect_backoff_ms": 200,
  "grpc.max_reconnect_backoff_ms": 5_000,
};

/**
 * Reaches a broker over gRPC: `grpc://host:port` (plain) or `grpcs://host:port` (TLS).
 * Keys are kept over HTTP only: here they are `unsupported`. Throws `ToolRunnerError` `options_invalid`.
 */
export function connectGrpc(url: string, options: GrpcTransportOptions = {}): AgentTransport {
  const target = targetOf(url, options);
  return {
    connect({ key }) {
      return grpcConnection(target, key);
    },
  };
}

type Target = ReturnType<typeof parseGrpcUrl>;

function targetOf(url: string, options: GrpcTransportOptions): Target {
  try {
    return parseGrpcUrl(url, { rootCertificates: options.rootCertificates });
  } catch (cause) {
    throw new ToolRunnerError("options_invalid", `The url is ${reasonOf(cause)}.`, { cause });
  }
}

type Done<Res> = (error: ServiceError | null, response?: Res) => void;

function grpcConnection({ address, credentials }: Target, key: string): AgentConnection {
  const calls = createGrpcClient(CallsDefinition, address, credentials, CHANNEL_OPTIONS);
  const catalog = createGrpcClient(CatalogDefinition, address, credentials, CHANNEL_OPTIONS);
  const diagnostics = createGrpcClient(DiagnosticsDefinition, address, credentials, CHANNEL_OPTIONS);
  const metadata = new Metadata();
  metadata.set("authorization", `Bearer ${key}`);
  const creations = createCallStream(() => calls.createCalls(metadata), address);

  /** One unary call with its limits. */
  function ask<Res>(options: SendOptions, start: (call: Partial<CallOptions>, done: Done<Res>) => ClientUnaryCall): Promise<Res> {
    const { signal } = options;
    return new Promise((resolve, reject) => {
      if (signal?.aborted) {
        reject(abortedError(signal));
        return;
      }
      const onAbort = (): void => call.cancel();
      const call = start({ deadline: Date.now() + options.timeoutMs }, (error, response) => {
        signal?.removeEventListener("abort", onAbort);
        if (signal?.aborted) reject(abortedError(signal));
        else if (error !== null) reject(refusalFrom(error, address));
        else if (response === undefined) reject(new ToolRunnerError("answer_invalid", "The broker's answer is empty."));
        else resolve(response);
      });
      signal?.addEventListener("abort", onAbort, { once: true });
    });
  }

  type Handlers = {
    readonly [Name in OperationName]: (request: OperationRequest, options: SendOptions) => Promise<OperationAnswers[Name]>;
  };

  const overHttp = async (): Promise<never> => {
    throw new ToolRunnerError("unsupported", "Keys are not kept over gRPC: use the HTTP interface for them.");
  };

  const page = <In, Out>(answer: { readonly data: readonly In[]; readonly nextPage?: string | undefined }, view: (item: In) => Out) => ({
    data: answer.data.map(view),
    next_page: answer.nextPage ?? null,
  });

  const pageFields = (request: OperationRequest): proto.ListBindingsRequest => {
    const { uint32, text } = fieldsOf(request);
    return { limit: uint32("limit"), page: text("page") };
  };

  const getToolset = async (request: OperationRequest, options: SendOptions) => {
    const { needed, uint32 } = fieldsOf(request);
    const message = { id: needed("id"), version: uint32("version") };
    return toolsetView(await ask<proto.Toolset>(options, (how, done) => catalog.getToolset(message, metadata, how, done)));
  };

  const handlers: Handlers = {
    createCall: async (request, options) => callView(await creations.create(createCallMessage(request), options)),
    async createBatch(request, options) {
      const { number, list } = fieldsOf(request);
      const message = {
        calls: list("calls").map((body) =>
          createCallMessage({ body: body as Readonly<Record<string, unknown>>, traceparent: request.traceparent }),
        ),
        waitSeconds: number("wait_seconds"),
      };
      const { data } = await ask<proto.CreateBatchResponse>(options, (how, done) => calls.createBatch(message, metadata, how, done));
      return { data: data.map(batchAnswer) };
    },
    async getCall(request, options) {
      const { needed, number, text } = fieldsOf(request);
      const message = { id: needed("id"), waitSeconds: number("wait_seconds"), waitFor: text("wait_for") };
      return callView(await ask<proto.Call>(options, (how, done) => calls.getCall(message, metadata, how, done)));
    },
    async listCalls(request, options) {
      const { text } = fieldsOf(request);
      const message: proto.ListCallsRequest = {
        ...pageFields(request),
        state: text("state"),
        tool: text("tool"),
        toolset: text("toolset"),
        binding: text("binding"),
        agent: text("agent"),
        subject: text("subject"),
        session: text("session"),
      };
      return page(await ask<proto.ListCallsResponse>(options, (how, done) => calls.listCalls(message, metadata, how, done)), callView);
    },
    async listCallEvents(request, options) {
      const { needed, uint32 } = fieldsOf(request);
      const message = { id: needed("id"), afterSeq: uint32("after_seq") };
      return page(
        await ask<proto.ListCallEventsResponse>(options, (how, done) => calls.listCallEvents(message, metadata, how, done)),
        eventView,
      );
    },
    async readResult(request, options) {
      const { needed, uint32 } = fieldsOf(request);
      const message = { id: needed("id"), offset: uint32("offset"), maxBytes: uint32("max_bytes") };
      const answer = await ask<proto.ReadResultResponse>(options, (how, done) => calls.readResult(message, metadata, how, done));
      return { text: answer.text, next_offset: answer.nextOffset, eof: answer.eof };
    },
    async cancelCall(request, options) {
      const { needed, text } = fieldsOf(request);
      const message = { id: needed("id"), mode: text("mode"), reason: text("reason") };
      return callView(await ask<proto.Call>(options, (how, done) => calls.cancelCall(message, metadata, how, done)));
    },
    async confirmCall(request, options) {
      const { needed } = fieldsOf(request);
      const message = { id: needed("id"), decision: needed("decision") };
      return callView(await ask<proto.Call>(options, (how, done) => calls.confirmCall(message, metadata, how, done)));
    },
    async reconcileCall(request, options) {
      const { needed, text, json } = fieldsOf(request);
      const message = { id: needed("id"), outcome: needed("outcome"), resultJson: json("result"), note: text("note") };
      return callView(await ask<proto.Call>(options, (how, done) => calls.reconcileCall(message, metadata, how, done)));
    },
    async putBinding(request, options) {
      const { needed } = fieldsOf(request);
      const message = { id: needed("id"), name: needed("name"), kind: needed("kind"), limits: limitsMessage(request) };
      return bindingView(await ask<proto.Binding>(options, (how, done) => catalog.putBinding(message, metadata, how, done)));
    },
    async getBinding(request, options) {
      const message = { id: fieldsOf(request).needed("id") };
      return bindingView(await ask<proto.Binding>(options, (how, done) => catalog.getBinding(message, metadata, how, done)));
    },
    listBindings: async (request, options) =>
      page(
        await ask<proto.ListBindingsResponse>(options, (how, done) => catalog.listBindings(pageFields(request), metadata, how, done)),
        bindingView,
      ),
    async putToolset(request, options) {
      const { needed, uint32, list, text } = fieldsOf(request);
      const message: proto.PutToolsetRequest = {
        id: needed("id"),
        baseVersion: uint32("base_version") ?? 0,
        tools: list("tools").map((tool) => ({ toolJson: JSON.stringify(tool) ?? "" })),
        idempotencyKey: text("idempotency_key"),
      };
      return toolsetView(await ask<proto.Toolset>(options, (how, done) => catalog.putToolset(message, metadata, how, done)));
    },
    getToolset,
    getToolsetVersion: getToolset,
    listToolsets: async (request, options) =>
      page(
        await ask<proto.ListToolsetsResponse>(options, (how, done) => catalog.listToolsets(pageFields(request), metadata, how, done)),
        toolsetView,
      ),
    async listToolsetVersions(request, options) {
      const message = { ...pageFields(request), id: fieldsOf(request).needed("id") };
      return page(
        await ask<proto.ListToolsetVersionsResponse>(options, (how, done) => catalog.listToolsetVersions(message, metadata, how, done)),
        toolsetView,
      );
    },
    createAgentKey: overHttp,
    listAgentKeys: overHttp,
    getAgentKey: overHttp,
    revokeAgentKey: overHttp,
    createRunnerKey: overHttp,
    listRunnerKeys: overHttp,
    getRunnerKey: overHttp,
    revokeRunnerKey: overHttp,
    listRunners: async (request, options) =>
      page(
        await ask<proto.ListRunnersResponse>(options, (how, done) => diagnostics.listRunners(pageFields(request), metadata, how, done)),
        runnerView,
      ),
  };

  return {
    async send(operation, request, options) {
      try {
        return await handlers[operation](request, options);
      } catch (error) {
        if (error instanceof ToolRunnerError) throw error;
        throw new ToolRunnerError("answer_invalid", `The broker's answer cannot be read: ${reasonOf(error)}.`, { cause: error });
      }
    },
    watch: (callId, afterSeq, signal) => readEvents(() => calls.watchCall({ id: callId, afterSeq }, metadata), address, signal),
    close() {
      creations.close();
      for (const client of [calls, catalog, diagnostics]) client.close();
    },
  };
}

function batchAnswer({ answer }: proto.BatchAnswer): Call | ToolRunnerError {
  if (answer === undefined) throw new ToolRunnerError("answer_invalid", "An answer of the batch is neither a call nor a refusal.");
  return answer.$case === "call" ? callView(answer.value) : refusalIn(answer.value);
}

/** Reads one stream to its end; leaving the iteration cancels it. */
async function* readEvents(
  open: () => ClientReadableStream<proto.CallEvent>,
  address: string,
  signal: AbortSignal | undefined,
): AsyncGenerator<CallEvent, void> {
  if (signal?.aborted) throw abortedError(signal);
  const stream = open();
  const onAbort = (): void => stream.cancel();
  signal?.addEventListener("abort", onAbort, { once: true });
  try {
    for await (const message of stream as AsyncIterable<proto.CallEvent>) yield eventView(message);
  } catch (error) {
    if (signal?.aborted) throw abortedError(signal);
    if (isServiceError(error)) throw refusalFrom(error, address);
    throw new ToolRunnerError("unreachable", `The stream from ${address} broke (${reasonOf(error)}).`, { cause: error });
  } finally {
    signal?.removeEventListener("abort", onAbort);
    // What a cancelled stream still reports is of no interest to anybody.
    stream.on("error", () => undefined);
    stream.cancel();
  }
}

function isServiceError(error: unknown): error is StatusObject {
  return error instanceof Error && "code" in error && typeof error.code === "number" && error.code in status && "details" in error;
}
