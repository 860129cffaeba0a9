/**
 * Operations in memory for the tests of the gateways and of the agent SDK: no ledger, no runners. Calls are driven by the
 * test (`settle`), waits are real, everything that was asked for is recorded.
 */

import { BrokerError } from "../../domain/broker-error.js";
import { answersTurn, type CallEventView, type CallView, type EventName, isSettled } from "../../domain/call-view.js";
import { type AgentPrincipal, type Authenticator, type KeyView, SCOPES, type Scope } from "../../domain/ports/access.js";
import type { BindingView, Json, Page, PageRequest, ToolsetView, ToolView } from "../../domain/ports/catalog.js";
import type { Log, LogFields } from "../../domain/ports/log.js";
import type { RunnerView, WaitSignal } from "../../wire/operations.js";
import type { AgentOperations } from "../shared/agent-api.js";

/** One operation that was asked for. */
export interface Recorded {
  readonly operation: string;
  readonly arguments: readonly unknown[];
}

/** {@link AgentOperations} that a test drives. */
export interface FakeOperations extends AgentOperations {
  readonly recorded: readonly Recorded[];
  /** The next time `operation` is asked for, it throws `error`. */
  failNext(operation: string, error: unknown): void;
  /** Settles the call as succeeded with `result`, and ends its waits. */
  settle(callId: string, result: Json): void;
  /** Adds an event to the call. */
  emit(callId: string, event: EventName, data?: { readonly [key: string]: Json }): void;
  /** Ids of all calls, oldest first. */
  readonly callIds: readonly string[];
  /** Waits and watches that have not ended. */
  readonly openWaits: number;
}

interface FakeCall {
  view: CallView;
  readonly events: CallEventView[];
  readonly listeners: Set<() => void>;
}

const AT = "2026-01-01T00:00:00.000Z";

/** Makes operations without calls; toolset `shop` and binding `shop` exist. Tools called `instant` settle at once. */
export function createFakeOperations(): FakeOperations {
  const recorded: Recorded[] = [];
  const failures = new Map<string, unknown>();
  const calls = new Map<string, FakeCall>();
  const keys = new Map<string, { call: CallView; body: string }>();
  const bindings = new Map<string, BindingView>([["shop", { id: "shop", name: "Shop", kind: "backend", created_at: AT }]]);
  const toolsets = new Map<string, ToolsetView[]>([["shop", [toolset("shop", 1, [])]]]);
  const agentKeys = new Map<string, KeyView>();
  const runnerKeys = new Map<string, KeyView & { readonly binding: string }>();
  let openWaits = 0;
  let count = 0;

  function record(operation: string, ...args: readonly unknown[]): void {
    recorded.push({ operation, arguments: args });
    if (failures.has(operation)) {
      const error = failures.get(operation);
      failures.delete(operation);
      throw error;
    }
  }

  function find(callId: string): FakeCall {
    const call = calls.get(callId);
    if (call === undefined) throw new BrokerError("not_found", "There is no call with this id, or it is not yours.");
    return call;
  }

  function changed(call: FakeCall): void {
    for (const listener of [...call.listeners]) listener();
  }

  function emit(callId: string, event: EventName, data: { readonly [key: string]: Json } = {}): void {
    const call = find(callId);
    call.events.push({ type: "event", call_id: callId, seq: call.events.length + 1, at: AT, event, data });
    changed(call);
  }

  function settle(callId: string, result: Json): void {
    const call = find(callId);
    const text = JSON.stringify(result);
    call.view = {
      ...call.view,
      state: "succeeded",
      waiting_for: null,
      settled_at: AT,
      result,
      receipt: { attempt: 1, fence: 7, outcome: "succeeded", runner_id: "run_1", received_at: AT, digest: "sha256:00" },
      model_result: { text, bytes_before: Buffer.byteLength(text), bytes_after: Buffer.byteLength(text), truncated: false },
    };
    emit(callId, "settled", { state: "succeeded" });
  }

  async function waitFor(call: FakeCall, seconds: number, signal: WaitSignal | undefined): Promise<CallView> {
    if (seconds === 0 || answersTurn(call.view.state)) return call.view;
    openWaits += 1;
    try {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, seconds * 1_000);
        const listener = (): void => {
          if (answersTurn(call.view.state) || signal?.aborted) {
            clearTimeout(timer);
            call.listeners.delete(listener);
            resolve();
          }
        };
        call.listeners.add(listener);
        signal?.addEventListener("abort", listener, { once: true });
        listener();
      });
    } finally {
      openWaits -= 1;
    }
    return call.view;
  }

  function pageOf<T>(items: readonly T[], { limit = 20, page }: PageRequest): Page<T> {
    const start = page === undefined ? 0 : Number(page);
    if (!Number.isInteger(start)) throw new BrokerError("page_invalid", "The page token is not one of this list.");
    const next = start + limit;
    return { data: items.slice(start, next), next_page: next < items.length ? String(next) : null };
  }

  return {
    recorded,
    failNext: (operation, error) => void failures.set(operation, error),
    settle,
    emit,
    get callIds() {
      return [...calls.keys()];
    },
    get openWaits() {
      return openWaits;
    },
    calls: {
      async create(principal, body, context) {
        record("create", principal, body, context);
        const { wait_seconds, ...identity } = body;
        const canonical = JSON.stringify(identity);
        const known = body.idempotency_key === undefined ? undefined : keys.get(body.idempotency_key);
        if (known !== undefined && known.body !== canonical)
          throw new BrokerError("idempotency_conflict", "The key was used for another request.");
        if (known !== undefined) return await waitFor(find(known.call.id), wait_seconds ?? 0, context.signal);
        if (body.toolset !== "shop") throw new BrokerError("toolset_unknown", `There is no toolset ${body.toolset}.`);
        count += 1;
        const id = `call_${String(count).padStart(4, "0")}`;
        const call: FakeCall = {
          view: {
            type: "call",
            id,
            state: "queued",
            toolset: body.toolset,
            toolset_version: body.toolset_version ?? 1,
            tool: body.tool,
            binding: "shop",
            agent: body.agent ?? principal.keyId,
            subject: body.subject ?? null,
            session: body.session ?? null,
            attempt: 0,
            waiting_for: "runner",
            created_at: AT,
            deadline_at: AT,
            settled_at: null,
            receipt: null,
            result: null,
            result_ref: null,
            error: null,
            model_result: null,
          },
          events: [],
          listeners: new Set(),
        };
        calls.set(id, call);
        if (body.idempotency_key !== undefined) keys.set(body.idempotency_key, { call: call.view, body: canonical });
        emit(id, "requested");
        if (body.tool === "instant") settle(id, body.arguments);
        return await waitFor(call, wait_seconds ?? 0, context.signal);
      },
      async get(principal, callId, options) {
        record("get", principal, callId, options);
        return await waitFor(find(callId), options.wait_seconds ?? 0, options.signal);
      },
      async list(principal, filter, page) {
        record("list", principal, filter, page);
        const matching = [...calls.values()]
          .map(({ view }) => view)
          .filter((view) => filter.state === undefined || view.state === filter.state);
        return pageOf(matching.reverse(), page);
      },
      async listEvents(principal, callId, afterSeq) {
        record("listEvents", principal, callId, afterSeq);
        return find(callId).events.filter(({ seq }) => seq > afterSeq);
      },
      async *watchEvents(principal, callId, afterSeq, signal) {
        record("watchEvents", principal, callId, afterSeq);
        const call = find(callId);
        openWaits += 1;
        try {
          let next = afterSeq;
          for (;;) {
            const event = call.events.find(({ seq }) => seq > next);
            if (event !== undefined) {
              next = event.seq;
              yield event;
              if (event.event === "settled") return;
            } else {
              if (signal.aborted || isSettled(call.view.state)) return;
              await new Promise<void>((resolve) => {
                const listener = (): void => {
                  call.listeners.delete(listener);
                  resolve();
                };
                call.listeners.add(listener);
                signal.addEventListener("abort", listener, { once: true });
              });
            }
          }
        } finally {
          openWaits -= 1;
        }
      },
      async readResult(principal, callId, { offset = 0, max_bytes = 65_536 }) {
        record("readResult", principal, callId, { offset, max_bytes });
        const text = JSON.stringify(find(callId).view.result ?? null);
        return {
          text: text.slice(offset, offset + max_bytes),
          next_offset: Math.min(text.length, offset + max_bytes),
          eof: offset + max_bytes >= text.length,
        };
      },
      async cancel(principal, callId, body) {
        record("cancel", principal, callId, body);
        const call = find(callId);
        if (isSettled(call.view.state)) return { answered: true, call: call.view };
        if (body.mode === "skip" || body.mode === "killnowait") {
          call.view = { ...call.view, state: "cancelled", settled_at: AT };
          emit(callId, "settled", { state: "cancelled" });
          return { answered: true, call: call.view };
        }
        emit(callId, "cancel_requested");
        return { answered: false, call: call.view };
      },
      async confirm(principal, callId, body) {
        record("confirm", principal, callId, body);
        throw new BrokerError("not_awaiting_confirmation", `The call ${callId} is ${find(callId).view.state}.`);
      },
      async reconcile(principal, callId, body) {
        record("reconcile", principal, callId, body);
        const call = find(callId);
        if (body.outcome !== "applied") throw new BrokerError("not_reconcilable", `The call ${callId} is ${call.view.state}.`);
        settle(callId, body.result ?? null);
        return call.view;
      },
    },
    submissions: {
      async update(principal, callId, body) {
        record("update", principal, callId, body);
        emit(callId, "progress", { text: body.text ?? "", percentage: body.percentage ?? null, data: body.data ?? null });
        const event = find(callId).events.at(-1);
        if (event === undefined) throw new Error("an event that was told is gone");
        return event;
      },
      async settle(principal, callId, body) {
        record("settle", principal, callId, body);
        settle(callId, body.result ?? null);
        return { type: "receipt", call_id: callId, outcome: body.outcome, digest: "00", state: "succeeded", settled_at: AT };
      },
    },
    runners: {
      async list(principal, page) {
        record("listRunners", principal, page);
        return pageOf<RunnerView>([RUNNER], page);
      },
    },
    catalog: {
      async putBinding(application, id, body) {
        record("putBinding", application, id, body);
        const created = !bindings.has(id);
        const { limits, ...named } = body;
        const binding: BindingView = { id, ...named, ...(limits === undefined ? {} : { limits }), created_at: AT };
        bindings.set(id, binding);
        return { created, binding };
      },
      async getBinding(application, id) {
        record("getBinding", application, id);
        const binding = bindings.get(id);
        if (binding === undefined) throw new BrokerError("not_found", "There is no binding with this id, or it is not yours.");
        return binding;
      },
      listBindings(application, page) {
        record("listBindings", application, page);
        return pageOf([...bindings.values()], page);
      },
      async putToolset(application, id, body) {
        record("putToolset", application, id, body);
        const versions = toolsets.get(id) ?? [];
        if (body.base_version !== versions.length) {
          throw new BrokerError("version_conflict", `The toolset ${id} is at version ${versions.length}.`, {
            extra: { current_version: versions.length },
          });
        }
        const saved = toolset(id, versions.length + 1, body.tools as readonly ToolView[]);
        toolsets.set(id, [...versions, saved]);
        return { created: versions.length === 0, toolset: saved };
      },
      async getToolset(application, id, version) {
        record("getToolset", application, id, version);
        const versions = toolsets.get(id);
        if (versions === undefined) throw new BrokerError("toolset_unknown", `There is no toolset ${id}.`);
        const found = version === undefined ? versions.at(-1) : versions[version - 1];
        if (found === undefined) throw new BrokerError("toolset_version_unknown", `The toolset ${id} has no version ${version}.`);
        return found;
      },
      listToolsets(application, page) {
        record("listToolsets", application, page);
        return pageOf(
          [...toolsets.values()].map((versions) => versions.at(-1)).filter((one) => one !== undefined),
          page,
        );
      },
      listToolsetVersions(application, id, page) {
        record("listToolsetVersions", application, id, page);
        const versions = toolsets.get(id);
        if (versions === undefined) throw new BrokerError("toolset_unknown", `There is no toolset ${id}.`);
        return pageOf([...versions].reverse(), page);
      },
      async resolveTool() {
        throw new BrokerError("internal", "The gateways resolve no tools.");
      },
      async mergeTools() {
        throw new BrokerError("internal", "The gateways merge no tools.");
      },
    },
    keys: {
      async createAgentKey(application, body) {
        record("createAgentKey", application, body);
        const view: KeyView = {
          id: `key_${agentKeys.size + 1}`,
          name: body.name ?? null,
          scopes: body.scopes,
          created_at: AT,
          revoked_at: null,
        };
        agentKeys.set(view.id, view);
        return { ...view, key: "secret" };
      },
      listAgentKeys(application) {
        record("listAgentKeys", application);
        return [...agentKeys.values()];
      },
      getAgentKey(application, id) {
        record("getAgentKey", application, id);
        return found(agentKeys.get(id));
      },
      async revokeAgentKey(application, id) {
        record("revokeAgentKey", application, id);
        const revoked = { ...found(agentKeys.get(id)), revoked_at: AT };
        agentKeys.set(id, revoked);
        return revoked;
      },
      async createRunnerKey(application, binding, body) {
        record("createRunnerKey", application, binding, body);
        const view = { id: `rkey_${runnerKeys.size + 1}`, name: body.name ?? null, binding, created_at: AT, revoked_at: null };
        runnerKeys.set(view.id, view);
        return { ...view, key: "secret" };
      },
      listRunnerKeys(application, binding) {
        record("listRunnerKeys", application, binding);
        return [...runnerKeys.values()].filter((key) => key.binding === binding);
      },
      getRunnerKey(application, binding, id) {
        record("getRunnerKey", application, binding, id);
        return found(runnerKeys.get(id));
      },
      async revokeRunnerKey(application, binding, id) {
        record("revokeRunnerKey", application, binding, id);
        const revoked = { ...found(runnerKeys.get(id)), revoked_at: AT };
        runnerKeys.set(id, revoked);
        return revoked;
      },
    },
  };
}

function found<T>(value: T | undefined): T {
  if (value === undefined) throw new BrokerError("not_found", "There is no key with this id, or it is not yours.");
  return value;
}

function toolset(id: string, version: number, tools: readonly ToolView[]): ToolsetView {
  return { id, version, content_hash: "sha256:00", created_at: AT, tools };
}

const RUNNER: RunnerView = {
  runner_id: "run_1",
  binding: "shop",
  subject: null,
  broker_id: "brk_1",
  session_epoch: 3,
  transport: "memory",
  sdk: "test/0",
  connected_at: AT,
  slots: 4,
  grants_held: 1,
  handlers: [{ tool: "refund", version: "1", idempotent: true, cancellable: false }],
};

/** A key with all scopes. */
export const FULL_KEY = "key-with-all-scopes";
/** A key of runners. */
export const RUNNER_KEY = "key-of-a-runner";

/** Knows {@link FULL_KEY}, {@link RUNNER_KEY}, and `only:SCOPE,SCOPE` for every set of scopes. */
export function createFakeAuthenticator(): Authenticator {
  const principal = (scopes: readonly Scope[]): AgentPrincipal => ({
    kind: "agent",
    keyId: "key_test",
    application: "default",
    scopes: new Set(scopes),
  });
  return {
    async agent(credential) {
      if (credential === FULL_KEY) return principal(SCOPES);
      if (!credential.startsWith("only:")) return undefined;
      return principal(SCOPES.filter((scope) => credential.slice(5).split(",").includes(scope)));
    },
    async runner(credential) {
      return credential === RUNNER_KEY
        ? { kind: "runner", keyId: "rkey_test", application: "default", binding: "shop", mayNameSubject: false }
        : undefined;
    },
  };
}

/** A log that keeps its lines. */
export interface RecordingLog extends Log {
  readonly lines: readonly { readonly level: string; readonly event: string; readonly fields: LogFields }[];
}

/** Makes a log that keeps its lines. */
export function createRecordingLog(): RecordingLog {
  const lines: { level: string; event: string; fields: LogFields }[] = [];
  const at =
    (level: string) =>
    (event: string, fields: LogFields = {}): void =>
      void lines.push({ level, event, fields });
  return { lines, debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") };
}
