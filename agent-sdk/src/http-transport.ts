/** The HTTP interface over `fetch`. Runs wherever `fetch` does. */

import { abortedError, reasonOf, ToolRunnerError } from "./errors.js";
import { readEvents } from "./http-events.js";
import { refusalFrom, refusalInList } from "./http-refusal.js";
import { bodyText } from "./json-text.js";
import type { AgentConnection, AgentTransport, OperationAnswers, OperationName, OperationRequest, SendOptions } from "./transport.js";
import type { Call } from "./types.js";

/** Options of {@link connectHttp}. */
export interface HttpTransportOptions {
  /** Default: the global one. */
  readonly fetch?: typeof fetch;
  /** An event stream that brings nothing, not even a comment, for this long counts as broken. Default 45 s. */
  readonly eventSilenceMs?: number;
}

const EVENT_SILENCE_MS = 45_000;

const ADDRESSES: Readonly<Record<OperationName, `${"GET" | "POST" | "PUT" | "DELETE"} ${string}`>> = {
  createCall: "POST /v1/calls",
  createBatch: "POST /v1/calls:batch",
  getCall: "GET /v1/calls/{id}",
  listCalls: "GET /v1/calls",
  listCallEvents: "GET /v1/calls/{id}/events",
  readResult: "GET /v1/calls/{id}/result",
  cancelCall: "POST /v1/calls/{id}/cancel",
  confirmCall: "POST /v1/calls/{id}/confirmation",
  reconcileCall: "POST /v1/calls/{id}/reconcile",
  putBinding: "PUT /v1/bindings/{id}",
  getBinding: "GET /v1/bindings/{id}",
  listBindings: "GET /v1/bindings",
  putToolset: "PUT /v1/toolsets/{id}",
  getToolset: "GET /v1/toolsets/{id}",
  getToolsetVersion: "GET /v1/toolsets/{id}/versions/{version}",
  listToolsets: "GET /v1/toolsets",
  listToolsetVersions: "GET /v1/toolsets/{id}/versions",
  createAgentKey: "POST /v1/keys",
  listAgentKeys: "GET /v1/keys",
  getAgentKey: "GET /v1/keys/{key_id}",
  revokeAgentKey: "DELETE /v1/keys/{key_id}",
  createRunnerKey: "POST /v1/bindings/{id}/keys",
  listRunnerKeys: "GET /v1/bindings/{id}/keys",
  getRunnerKey: "GET /v1/bindings/{id}/keys/{key_id}",
  revokeRunnerKey: "DELETE /v1/bindings/{id}/keys/{key_id}",
  listRunners: "GET /v1/runners",
};

/**
 * Reaches a broker over HTTP. `url` is `http://…` or `https://…`, maybe with a path that a proxy adds.
 * Throws `ToolRunnerError` `options_invalid` for any other address.
 */
export function connectHttp(url: string, options: HttpTransportOptions = {}): AgentTransport {
  const base = baseOf(url);
  return {
    connect({ key }) {
      // Called without a receiver: the browser's fetch refuses any other than its own.
      const doFetch: typeof fetch = options.fetch ?? ((input, init) => fetch(input, init));
      return httpConnection(base, key, doFetch, options.eventSilenceMs ?? EVENT_SILENCE_MS);
    },
  };
}

function baseOf(url: string): string {
  const parsed = URL.canParse(url) ? new URL(url) : undefined;
  if (parsed === undefined || (parsed.protocol !== "http:" && parsed.protocol !== "https:")) {
    throw new ToolRunnerError(
      "options_invalid",
      "The url must be http://… or https://…; for gRPC give a transport: connectGrpc of @toolrunner/agent-sdk/grpc.",
    );
  }
  if (parsed.username !== "" || parsed.password !== "" || parsed.search !== "" || parsed.hash !== "") {
    throw new ToolRunnerError("options_invalid", "The url may hold no credentials, query or fragment: the key is an option of its own.");
  }
  return parsed.href.replace(/\/+$/, "");
}

function httpConnection(base: string, key: string, doFetch: typeof fetch, eventSilenceMs: number): AgentConnection {
  const authorization = `Bearer ${key}`;
  return {
    async send<Name extends OperationName>(
      operation: Name,
      request: OperationRequest,
      options: SendOptions,
    ): Promise<OperationAnswers[Name]> {
      const { method, url } = addressOf(base, operation, request);
      const limit = limited(options);
      try {
        const response = await doFetch(url, {
          method,
          headers: {
            authorization,
            accept: "application/json",
            ...(request.body === undefined ? {} : { "content-type": "application/json" }),
            ...(request.traceparent === undefined ? {} : { traceparent: request.traceparent }),
          },
          ...(request.body === undefined ? {} : { body: bodyText(request.body) }),
          signal: limit.signal,
        });
        const text = await response.text();
        if (!response.ok) throw refusalFrom(response, text);
        const answer = answerIn(text);
        return (operation === "createBatch" ? batchIn(answer) : answer) as OperationAnswers[Name];
      } catch (error) {
        throw limit.explain(error, base);
      } finally {
        limit.clear();
      }
    },
    watch: (callId, afterSeq, signal) =>
      readEvents({
        url: addressOf(base, "listCallEvents", { params: { id: callId } }).url,
        authorization,
        afterSeq,
        signal,
        silenceMs: eventSilenceMs,
        doFetch,
      }),
    close: () => undefined,
  };
}

function addressOf(base: string, operation: OperationName, request: OperationRequest): { readonly method: string; readonly url: string } {
  const [method = "", template = ""] = ADDRESSES[operation].split(" ");
  const path = template.replace(/\{(\w+)\}/g, (_whole, name: string) => segment(request.params?.[name] ?? ""));
  if (request.query === undefined) return { method, url: `${base}${path}` };
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(request.query)) if (value !== undefined) query.set(name, String(value));
  const text = query.toString();
  return { method, url: `${base}${path}${text === "" ? "" : `?${text}`}` };
}

/** An id stays one segment whatever it is: `.` and `..` would be resolved away, and an empty one would name the list. */
function segment(id: string): string {
  if (id === "" || id === "." || id === "..")
    throw new ToolRunnerError("not_found", `There is nothing with the id ${JSON.stringify(id)}.`, { type: "not_found_error", status: 404 });
  try {
    return encodeURIComponent(id);
  } catch (cause) {
    throw new ToolRunnerError("not_found", "There is nothing with an id that is not Unicode text.", {
      type: "not_found_error",
      status: 404,
      cause,
    });
  }
}

function batchIn(answer: object): OperationAnswers["createBatch"] {
  const data: unknown = "data" in answer ? answer.data : undefined;
  if (!Array.isArray(data)) throw new ToolRunnerError("answer_invalid", "The answer to a batch has no list: is it a ToolRunner broker?");
  return { data: data.map((item: Call | object) => refusalInList(item) ?? (item as Call)) };
}

function answerIn(text: string): object {
  let answer: unknown;
  try {
    answer = JSON.parse(text);
  } catch (cause) {
    throw new ToolRunnerError("answer_invalid", "The answer is not JSON: is this the address of a ToolRunner broker?", { cause });
  }
  if (typeof answer !== "object" || answer === null) {
    throw new ToolRunnerError("answer_invalid", "The answer is not an object: is this the address of a ToolRunner broker?");
  }
  return answer;
}

/** Joins the caller's signal with a time limit, and tells afterwards which of them ended the attempt. */
function limited(options: SendOptions): {
  readonly signal: AbortSignal;
  clear(): void;
  explain(error: unknown, base: string): ToolRunnerError;
} {
  const { signal, timeoutMs } = options;
  const controller = new AbortController();
  const onAbort = (): void => controller.abort();
  let late = false;
  const timer = setTimeout(() => {
    late = true;
    controller.abort();
  }, timeoutMs);
  signal?.addEventListener("abort", onAbort, { once: true });
  if (signal?.aborted) onAbort();
  return {
    signal: controller.signal,
    clear() {
      clearTimeout(timer);
      signal?.removeEventListener("abort", onAbort);
    },
    explain(error, base) {
      if (signal?.aborted) return abortedError(signal);
      if (error instanceof ToolRunnerError) return error;
      const reason = late ? `no answer within ${timeoutMs} ms` : reasonOf(error);
      return new ToolRunnerError("unreachable", `Nobody answers at ${base} (${reason}): check the address and that the broker runs.`, {
        cause: error,
      });
    },
  };
}
