/**
 * What agents can ask for, with the rules that hold on every interface: scope first, then the request's form, then the
 * operation. HTTP and gRPC only spell requests and answers.
 *
 * Requests come as unchecked JSON values (`unknown`); ids come from an address or a message field and may be any text.
 * All methods reject with `BrokerError`s, or with whatever an operation threw (see `fault.ts`).
 */

import { BrokerError } from "../../domain/broker-error.js";
import type { CallEventView, CallFilter, CallView } from "../../domain/call-view.js";
import { ID_PATTERN } from "../../domain/limits.js";
import type { AgentPrincipal, CreatedKey, KeyOperations, KeyView, RunnerPrincipal } from "../../domain/ports/access.js";
import type { BindingView, CatalogOperations, Page, ToolsetView } from "../../domain/ports/catalog.js";
import type {
  CallOperations,
  FinalReceiptView,
  RunnerOperations,
  RunnerView,
  SubmissionOperations,
  WaitSignal,
} from "../../wire/operations.js";
import { type BatchAnswer, createBatch } from "./create-batch.js";
import * as forms from "./forms.js";
import { pageOfKeys } from "./key-pages.js";
import { requireScope } from "./scopes.js";
import { SETTLE_CALL, UPDATE_CALL } from "./submission-forms.js";
import type { Caller, Waits } from "./waits.js";

/** The broker's operations, as the gateways get them. */
export interface AgentOperations {
  readonly calls: CallOperations;
  readonly submissions: SubmissionOperations;
  readonly runners: RunnerOperations;
  readonly catalog: CatalogOperations;
  readonly keys: KeyOperations;
}

/** {@link AgentOperations} behind the rules that hold on every interface. */
export type AgentApi = ReturnType<typeof createAgentApi>;

/** Ids that the broker makes: calls, keys. */
const MADE_ID = /^[A-Za-z0-9_-]{1,128}$/;

function notFound(what: string): BrokerError {
  return new BrokerError("not_found", `There is no ${what} with this id, or it is not yours.`);
}

/** An id that nothing can have is answered like one that nothing has. */
function madeId(id: string, what: string): string {
  if (!MADE_ID.test(id)) throw notFound(what);
  return id;
}

function chosenId(id: string, what: string): string {
  if (!ID_PATTERN.test(id)) throw notFound(what);
  return id;
}

function newId(id: string, what: string): string {
  if (!ID_PATTERN.test(id)) {
    throw new BrokerError("id_invalid", `The id of a ${what} has the form [a-z][a-z0-9_-]{0,63}: choose another one.`, {
      details: [{ path: "/id", expected: "[a-z][a-z0-9_-]{0,63}", actual: JSON.stringify(id.slice(0, 80)) }],
    });
  }
  return id;
}

function drainRefusal(): BrokerError {
  return new BrokerError("draining", "This broker is shutting down: repeat with the same idempotency key at another broker.", {
    retryAfterSeconds: 1,
  });
}

/** Puts the rules before the operations. */
export function createAgentApi({ calls, submissions, runners, catalog, keys }: AgentOperations, waits: Waits) {
  return {
    /** Refused while draining: the call may wait longer than this broker lives. */
    async createCall(
      principal: AgentPrincipal,
      body: unknown,
      context: { readonly caller: Caller; readonly traceparent?: string | undefined },
    ): Promise<CallView> {
      requireScope(principal, "createCall");
      const request = forms.CREATE_CALL.check(body);
      if (waits.draining) throw drainRefusal();
      const { traceparent } = context;
      if ((request.wait_seconds ?? 0) === 0) return await calls.create(principal, request, { traceparent });
      return await waits.run(context.caller, async (signal) => {
        try {
          return await calls.create(principal, request, { traceparent, signal });
        } catch (error) {
          // The wait was cut short before the call's id was known: it may be stored.
          if (signal.aborted && !(error instanceof BrokerError)) throw drainRefusal();
          throw error;
        }
      });
    },

    /**
     * Each call is answered or refused by itself. `read` spells a call of the list in the names of HTTP, and may throw.
     * A drain refuses the calls that are not created yet, and cuts the wait short.
     */
    async createBatch(
      principal: AgentPrincipal,
      body: unknown,
      context: { readonly caller: Caller; readonly traceparent?: string | undefined; readonly read?: (item: unknown) => unknown },
    ): Promise<readonly BatchAnswer[]> {
      requireScope(principal, "createBatch");
      const request = forms.CREATE_BATCH.check(body);
      if (waits.draining) throw drainRefusal();
      const { traceparent, read = (item: unknown) => item } = context;
      return await waits.run(context.caller, (signal) =>
        createBatch(calls, principal, request, { read, traceparent, now: () => performance.now() }, signal),
      );
    },

    /** A wait that the drain or the caller's going cuts short is answered with the call as it is then. */
    async getCall(principal: AgentPrincipal, id: string, query: unknown, context: { readonly caller: Caller }): Promise<CallView> {
      requireScope(principal, "getCall");
      const { wait_seconds, wait_for } = forms.GET_CALL.check(query);
      madeId(id, "call");
      if ((wait_seconds ?? 0) === 0 || waits.draining) return await calls.get(principal, id, {});
      return await waits.run(context.caller, async (signal) => {
        try {
          return await calls.get(principal, id, { wait_seconds, wait_for, signal });
        } catch (error) {
          if (signal.aborted && !(error instanceof BrokerError)) return await calls.get(principal, id, {});
          throw error;
        }
      });
    },

    async listCalls(principal: AgentPrincipal, query: unknown): Promise<Page<CallView>> {
      requireScope(principal, "listCalls");
      const { limit, page, ...filter } = forms.LIST_CALLS.check(query);
      return await calls.list(principal, filter satisfies CallFilter, { limit, page });
    },

    async listCallEvents(principal: AgentPrincipal, id: string, query: unknown): Promise<readonly CallEventView[]> {
      requireScope(principal, "listCallEvents");
      const { after_seq } = forms.LIST_EVENTS.check(query);
      return await calls.listEvents(principal, madeId(id, "call"), after_seq ?? 0);
    },

    /** Resolves once the call is known to be there; the events come by iterating, until `settled` or until `signal` aborts. */
    async watchCall(principal: AgentPrincipal, id: string, query: unknown, signal: WaitSignal): Promise<AsyncIterable<CallEventView>> {
      requireScope(principal, "watchCall");
      const { after_seq } = forms.LIST_EVENTS.check(query);
      madeId(id, "call");
      if (waits.draining) throw drainRefusal();
      await calls.get(principal, id, {});
      return calls.watchEvents(principal, id, after_seq ?? 0, signal);
    },

    async readResult(
      principal: AgentPrincipal,
      id: string,
      query: unknown,
    ): Promise<{ readonly text: string; readonly next_offset: number; readonly eof: boolean }> {
      requireScope(principal, "readResult");
      const page = forms.READ_RESULT.check(query);
      return await calls.readResult(principal, madeId(id, "call"), page);
    },

    async cancelCall(
      principal: AgentPrincipal,
      id: string,
      body: unknown,
    ): Promise<{ readonly answered: boolean; readonly call: CallView }> {
      requireScope(principal, "cancelCall");
      const request = forms.CANCEL_CALL.check(body);
      return await calls.cancel(principal, madeId(id, "call"), request);
    },

    async confirmCall(principal: AgentPrincipal, id: string, body: unknown): Promise<CallView> {
      requireScope(principal, "confirmCall");
      const request = forms.CONFIRM_CALL.check(body);
      return await calls.confirm(principal, madeId(id, "call"), request);
    },

    async reconcileCall(principal: AgentPrincipal, id: string, body: unknown): Promise<CallView> {
      requireScope(principal, "reconcileCall");
      const request = forms.RECONCILE_CALL.check(body);
      return await calls.reconcile(principal, madeId(id, "call"), request);
    },

    /** By a runner key of the call's binding. */
    async updateCall(principal: RunnerPrincipal, id: string, body: unknown): Promise<CallEventView> {
      const request = UPDATE_CALL.check(body);
      return await submissions.update(principal, madeId(id, "call"), request);
    },

    /** By a runner key of the call's binding. */
    async settleCall(principal: RunnerPrincipal, id: string, body: unknown): Promise<FinalReceiptView> {
      const request = SETTLE_CALL.check(body);
      return await submissions.settle(principal, madeId(id, "call"), request);
    },

    async putBinding(
      principal: AgentPrincipal,
      id: string,
      body: unknown,
    ): Promise<{ readonly created: boolean; readonly binding: BindingView }> {
      requireScope(principal, "putBinding");
      const request = forms.PUT_BINDING.check(body);
      return await catalog.putBinding(principal.application, newId(id, "binding"), request);
    },

    async getBinding(principal: AgentPrincipal, id: string): Promise<BindingView> {
      requireScope(principal, "getBinding");
      return await catalog.getBinding(principal.application, chosenId(id, "binding"));
    },

    async listBindings(principal: AgentPrincipal, query: unknown): Promise<Page<BindingView>> {
      requireScope(principal, "listBindings");
      return catalog.listBindings(principal.application, forms.PAGE.check(query));
    },

    async putToolset(
      principal: AgentPrincipal,
      id: string,
      body: unknown,
    ): Promise<{ readonly created: boolean; readonly toolset: ToolsetView }> {
      requireScope(principal, "putToolset");
      const request = forms.PUT_TOOLSET.check(body);
      return await catalog.putToolset(principal.application, newId(id, "toolset"), request);
    },

    /** `version` undefined: the latest. A text that is no version number is a version that does not exist. */
    async getToolset(principal: AgentPrincipal, id: string, version?: number | string): Promise<ToolsetView> {
      requireScope(principal, version === undefined ? "getToolset" : "getToolsetVersion");
      chosenId(id, "toolset");
      if (version === undefined) return await catalog.getToolset(principal.application, id);
      const number = typeof version === "number" ? version : /^[1-9]\d{0,9}$/.test(version) ? Number(version) : 0;
      if (!Number.isInteger(number) || number < 1) {
        // The toolset's own absence is told first, as for a number that merely is not there.
        await catalog.getToolset(principal.application, id);
        throw new BrokerError("toolset_version_unknown", `The toolset ${id} has no such version: versions are whole numbers from 1.`);
      }
      return await catalog.getToolset(principal.application, id, number);
    },

    async listToolsets(principal: AgentPrincipal, query: unknown): Promise<Page<ToolsetView>> {
      requireScope(principal, "listToolsets");
      return catalog.listToolsets(principal.application, forms.PAGE.check(query));
    },

    async listToolsetVersions(principal: AgentPrincipal, id: string, query: unknown): Promise<Page<ToolsetView>> {
      requireScope(principal, "listToolsetVersions");
      const page = forms.PAGE.check(query);
      return catalog.listToolsetVersions(principal.application, chosenId(id, "toolset"), page);
    },

    async createAgentKey(principal: AgentPrincipal, body: unknown): Promise<CreatedKey> {
      requireScope(principal, "createAgentKey");
      return await keys.createAgentKey(principal.application, forms.CREATE_AGENT_KEY.check(body));
    },

    async listAgentKeys(principal: AgentPrincipal, query: unknown): Promise<Page<KeyView>> {
      requireScope(principal, "listAgentKeys");
      const page = forms.PAGE.check(query);
      return pageOfKeys(keys.listAgentKeys(principal.application), "keys", page);
    },

    async getAgentKey(principal: AgentPrincipal, keyId: string): Promise<KeyView> {
      requireScope(principal, "getAgentKey");
      return keys.getAgentKey(principal.application, madeId(keyId, "key"));
    },

    async revokeAgentKey(principal: AgentPrincipal, keyId: string): Promise<KeyView> {
      requireScope(principal, "revokeAgentKey");
      return await keys.revokeAgentKey(principal.application, madeId(keyId, "key"));
    },

    async createRunnerKey(principal: AgentPrincipal, binding: string, body: unknown): Promise<CreatedKey> {
      requireScope(principal, "createRunnerKey");
      const request = forms.CREATE_RUNNER_KEY.check(body);
      return await keys.createRunnerKey(principal.application, chosenId(binding, "binding"), request);
    },

    async listRunnerKeys(principal: AgentPrincipal, binding: string, query: unknown): Promise<Page<KeyView>> {
      requireScope(principal, "listRunnerKeys");
      const page = forms.PAGE.check(query);
      chosenId(binding, "binding");
      return pageOfKeys(keys.listRunnerKeys(principal.application, binding), `bindings/${binding}/keys`, page);
    },

    async getRunnerKey(principal: AgentPrincipal, binding: string, keyId: string): Promise<KeyView> {
      requireScope(principal, "getRunnerKey");
      return keys.getRunnerKey(principal.application, chosenId(binding, "binding"), madeId(keyId, "key"));
    },

    async revokeRunnerKey(principal: AgentPrincipal, binding: string, keyId: string): Promise<KeyView> {
      requireScope(principal, "revokeRunnerKey");
      return await keys.revokeRunnerKey(principal.application, chosenId(binding, "binding"), madeId(keyId, "key"));
    },

    async listRunners(principal: AgentPrincipal, query: unknown): Promise<Page<RunnerView>> {
      requireScope(principal, "listRunners");
      return await runners.list(principal, forms.PAGE.check(query));
    },
  };
}
