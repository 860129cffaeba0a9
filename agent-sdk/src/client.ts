/**
 * The client: repeats what is safe to repeat, waits as long as it takes, and puts broken event streams together again.
 *
 * Invariants: one `call` or `start` is at most one call at the broker, however often it is sent, since all attempts carry one
 * idempotency key; an event is given out once and in order; every rejection is a `ToolRunnerError`.
 */

import { createBatchCaller } from "./batch.js";
import { createBody, randomKey, secondsOf } from "./call-body.js";
import type { AgentClient, AgentClientOptions, CallRequest, PageOptions, RequestOptions, WaitOptions } from "./client-types.js";
import { ToolRunnerError } from "./errors.js";
import { followEvents } from "./follow-events.js";
import { connectHttp } from "./http-transport.js";
import { createPatience, type Patience, REAL_TIME, type RetryTime } from "./retry.js";
import type { AgentConnection, OperationAnswers, OperationName, OperationRequest } from "./transport.js";
import { answersTurn, type Call, isSettled, type Json } from "./types.js";

const RETRY_FOR_MS = 60_000;
const ANSWER_TIMEOUT_MS = 15_000;
/** The longest that a platform's timer holds. */
const TIMEOUT_MS_MAX = 2_147_483_647;
const RESULT_PAGE_BYTES = 262_144;

/** Operations that are not carried out twice without harm: repeated only when the broker said that they were not carried out. */
const ONCE: ReadonlySet<OperationName> = new Set(["confirmCall", "reconcileCall", "createAgentKey", "createRunnerKey"]);

/** Makes a client. Throws `ToolRunnerError` `options_invalid`. Nothing is dialled before the first request. */
export function createAgentClient(options: AgentClientOptions): AgentClient {
  return createClientWith(options, REAL_TIME);
}

/** {@link createAgentClient} with a time of its own, for tests. */
export function createClientWith(options: AgentClientOptions, time: RetryTime): AgentClient {
  const connection = connect(options);
  const retryForMs = durationOption(options.retryForMs, RETRY_FOR_MS, "retryForMs");
  const answerTimeoutMs = durationOption(options.answerTimeoutMs, ANSWER_TIMEOUT_MS, "answerTimeoutMs");

  async function send<Name extends OperationName>(
    operation: Name,
    request: OperationRequest,
    { signal }: RequestOptions = {},
    waitSeconds = 0,
  ): Promise<OperationAnswers[Name]> {
    const timeoutMs = Math.min(TIMEOUT_MS_MAX, waitSeconds * 1_000 + answerTimeoutMs);
    let patience: Patience | undefined;
    for (;;) {
      try {
        return await connection.send(operation, request, { signal, timeoutMs });
      } catch (error) {
        patience ??= createPatience(time, retryForMs, signal);
        await patience.afterFailure(error, !ONCE.has(operation));
      }
    }
  }

  /** Asks until the turn has its answer, or with the goal `settled` the call is settled, or `endsAt` has come. */
  async function waitFor(call: Call, endsAt: number, options: RequestOptions, goal: "answer" | "settled" = "answer"): Promise<Call> {
    const reached = goal === "settled" ? isSettled : answersTurn;
    let latest = call;
    if (reached(latest)) return latest;
    const patience = createPatience(time, retryForMs, options.signal);
    while (!reached(latest)) {
      const left = endsAt - time.now();
      if (left <= 0) return latest;
      const wait = secondsOf(left);
      const started = time.now();
      try {
        latest = await send("getCall", { params: { id: latest.id }, query: waitQuery(wait, goal) }, options, wait);
      } catch (error) {
        // The call is known; that the broker is away right now is no reason to forget it.
        if (time.now() >= endsAt && error instanceof ToolRunnerError && error.retryable) return latest;
        throw error;
      }
      // A broker that drains answers waits at once: asking again at once would only be noise.
      if (time.now() - started < Math.min(1_000, wait * 500)) await patience.afterNothing();
      else patience.succeeded();
    }
    return latest;
  }

  async function create(request: CallRequest, waitMs: number, options: RequestOptions): Promise<Call> {
    const wait = secondsOf(waitMs);
    return send("createCall", { body: { ...createBody(request), wait_seconds: wait }, traceparent: request.traceparent }, options, wait);
  }

  const batch = createBatchCaller({ send, waitFor, time, retryForMs });

  return {
    batch(requests, options = {}) {
      const waitMs = durationOption(options.waitMs, Number.POSITIVE_INFINITY, "waitMs");
      return batch(requests, waitMs, options);
    },
    async settled(id, options = {}) {
      const waitMs = durationOption(options.waitMs, Number.POSITIVE_INFINITY, "waitMs");
      const endsAt = time.now() + waitMs;
      const wait = secondsOf(waitMs);
      const call = await send("getCall", { params: { id }, query: waitQuery(wait, "settled") }, options, wait);
      return await waitFor(call, endsAt, options, "settled");
    },
    async call(request, options: WaitOptions = {}) {
      const waitMs = durationOption(options.waitMs, Number.POSITIVE_INFINITY, "waitMs");
      const endsAt = time.now() + waitMs;
      return await waitFor(await create(request, waitMs, options), endsAt, options);
    },
    start: (request, options = {}) => create(request, 0, options),
    async get(id, options = {}) {
      const waitMs = durationOption(options.waitMs, 0, "waitMs");
      if (waitMs === 0) return await send("getCall", { params: { id } }, options);
      const endsAt = time.now() + waitMs;
      const wait = secondsOf(waitMs);
      const call = await send("getCall", { params: { id }, query: waitQuery(wait, "answer") }, options, wait);
      return await waitFor(call, endsAt, options);
    },
    list: ({ signal, ...query } = {}) => send("listCalls", { query }, optional(signal)),
    events: (id, { afterSeq = 0, signal } = {}) =>
      followEvents({ connection, send, id, afterSeq, signal, patience: createPatience(time, retryForMs, signal) }),
    listEvents: (id, { afterSeq, signal } = {}) =>
      send("listCallEvents", { params: { id }, query: { after_seq: afterSeq } }, optional(signal)),
    result: (id, { offset, maxBytes, signal } = {}) =>
      send("readResult", { params: { id }, query: { offset, max_bytes: maxBytes } }, optional(signal)),
    async wholeResult(id, options) {
      let text = "";
      let offset = 0;
      for (;;) {
        const page = await send("readResult", { params: { id }, query: { offset, max_bytes: RESULT_PAGE_BYTES } }, options);
        text += page.text;
        if (page.eof) return parseResult(text);
        if (page.next_offset <= offset) throw new ToolRunnerError("answer_invalid", "The result's pages do not go on.");
        offset = page.next_offset;
      }
    },
    cancel: (id, { mode, reason, signal } = {}) => send("cancelCall", { params: { id }, body: { mode, reason } }, optional(signal)),
    confirm: (id, { decision }, options) => send("confirmCall", { params: { id }, body: { decision } }, options),
    reconcile: (id, { outcome, result, note }, options) =>
      send("reconcileCall", { params: { id }, body: { outcome, result, note } }, options),
    toolsets: {
      list: (options) => send("listToolsets", pageQuery(options), options),
      get: (id, { version, signal } = {}) =>
        version === undefined
          ? send("getToolset", { params: { id } }, optional(signal))
          : send("getToolsetVersion", { params: { id, version: String(version) } }, optional(signal)),
      versions: (id, options) => send("listToolsetVersions", { params: { id }, ...pageQuery(options) }, options),
      put: (id, { baseVersion, tools, idempotencyKey }, options) => {
        const body = { base_version: baseVersion, tools, idempotency_key: idempotencyKey ?? randomKey() };
        return send("putToolset", { params: { id }, body }, options);
      },
    },
    bindings: {
      list: (options) => send("listBindings", pageQuery(options), options),
      get: (id, options) => send("getBinding", { params: { id } }, options),
      put: (id, { name, kind, limits }, options) =>
        send("putBinding", { params: { id }, body: { name, kind, ...(limits === undefined ? {} : { limits }) } }, options),
      keys: {
        list: (id, options) => send("listRunnerKeys", { params: { id }, ...pageQuery(options) }, options),
        get: (id, keyId, options) => send("getRunnerKey", { params: { id, key_id: keyId } }, options),
        create: (id, { name } = {}, options) => send("createRunnerKey", { params: { id }, body: { name } }, options),
        delete: (id, keyId, options) => send("revokeRunnerKey", { params: { id, key_id: keyId } }, options),
      },
    },
    keys: {
      list: (options) => send("listAgentKeys", pageQuery(options), options),
      get: (keyId, options) => send("getAgentKey", { params: { key_id: keyId } }, options),
      create: ({ scopes, name }, options) => send("createAgentKey", { body: { name, scopes } }, options),
      delete: (keyId, options) => send("revokeAgentKey", { params: { key_id: keyId } }, options),
    },
    runners: { list: (options) => send("listRunners", pageQuery(options), options) },
    close: () => connection.close(),
  };
}

function connect({ url, key, transport }: AgentClientOptions): AgentConnection {
  if (typeof key !== "string" || !/^[\x21-\x7e]+$/.test(key)) {
    throw new ToolRunnerError("options_invalid", "The key must be an agent key: text without spaces.");
  }
  if (transport !== undefined) return transport.connect({ key });
  if (url === undefined) throw new ToolRunnerError("options_invalid", "Give the broker's url, or a transport.");
  return connectHttp(url).connect({ key });
}

function durationOption(value: number | undefined, fallback: number, name: string): number {
  if (value === undefined) return fallback;
  if (typeof value !== "number" || Number.isNaN(value) || value < 0) {
    throw new ToolRunnerError("options_invalid", `${name} must be a number of milliseconds, 0 or more.`);
  }
  return value;
}

function waitQuery(waitSeconds: number, goal: "answer" | "settled"): Readonly<Record<string, string | number>> {
  // A broker that knows no other goal than the turn's answer is not asked for one without need.
  return goal === "settled" ? { wait_seconds: waitSeconds, wait_for: goal } : { wait_seconds: waitSeconds };
}

function optional(signal: AbortSignal | undefined): RequestOptions {
  return signal === undefined ? {} : { signal };
}

function pageQuery({ limit, page }: PageOptions = {}): OperationRequest {
  return { query: { limit, page } };
}

function parseResult(text: string): Json {
  try {
    return JSON.parse(text) as Json;
  } catch (cause) {
    throw new ToolRunnerError("answer_invalid", "The result's pages do not make up JSON.", { cause });
  }
}
