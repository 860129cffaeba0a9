/** The addresses of the HTTP interface: one row for each, from which the server and `/openapi.json` are made. */

import { answersTurn, type CallView } from "../../domain/call-view.js";
import { BATCH_BODY_BYTES_MAX, BODY_BYTES_MAX } from "../../domain/limits.js";
import type { AgentPrincipal, RunnerPrincipal } from "../../domain/ports/access.js";
import type { AgentApi } from "../shared/agent-api.js";
import type { Form } from "../shared/form.js";
import * as forms from "../shared/forms.js";
import type { OperationName, RunnerOperationName } from "../shared/scopes.js";
import { SETTLE_CALL, UPDATE_CALL } from "../shared/submission-forms.js";
import type { Caller } from "../shared/waits.js";
import * as views from "./view-schemas.js";

/** Bodies of calls that carry no tools, arguments or results. */
export const SMALL_BODY_BYTES_MAX = 65_536;

/** What a route's handler gets. `query` and `body` are unchecked. */
export interface RouteInput {
  readonly principal: AgentPrincipal;
  /** Who asks where the operation is one of runners. */
  readonly runner: RunnerPrincipal;
  /** Path segments, decoded; `""` for one that the route does not have. */
  readonly param: (name: string) => string;
  readonly query: unknown;
  readonly body: unknown;
  readonly traceparent: string | undefined;
  readonly caller: Caller;
  /** The error object for what was thrown, where only a part of the answer is one. */
  readonly refused: (error: unknown) => object;
}

/** A status and what is sent as JSON. */
export interface RouteAnswer {
  readonly status: number;
  readonly body: object;
}

/** One address and method. */
export interface Route {
  readonly operation: OperationName | RunnerOperationName;
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  /** Parameters as segments `:name`. */
  readonly path: string;
  readonly summary: string;
  readonly query?: Form<unknown>;
  /** Absent: the call takes no body. */
  readonly body?: Form<unknown>;
  /** No body at all stands for `{}`. */
  readonly bodyOptional?: true;
  readonly bodyBytesMax?: number;
  /** Response schemas by status. */
  readonly answers: Readonly<Record<number, views.AnswerSchema>>;
  handle(api: AgentApi, input: RouteInput): Promise<RouteAnswer>;
}

const ok = (body: object): RouteAnswer => ({ status: 200, body });
const call = (view: CallView): RouteAnswer => ({ status: answersTurn(view.state) ? 200 : 202, body: view });
const stored = (created: boolean, body: object): RouteAnswer => ({ status: created ? 201 : 200, body });

const callAnswers = { 200: views.CALL, 202: views.OPEN_CALL };

/** All routes for agents, but for the event stream's second form (see `event-stream.ts`). */
export const ROUTES: readonly Route[] = [
  {
    operation: "createCall",
    method: "POST",
    path: "/v1/calls",
    summary: "Call a tool",
    body: forms.CREATE_CALL,
    bodyBytesMax: BODY_BYTES_MAX,
    answers: callAnswers,
    handle: async (api, { principal, body, caller, traceparent }) => call(await api.createCall(principal, body, { caller, traceparent })),
  },
  {
    operation: "createBatch",
    method: "POST",
    path: "/v1/calls:batch",
    summary: "Call up to 64 tools at once",
    body: forms.CREATE_BATCH,
    bodyBytesMax: BATCH_BODY_BYTES_MAX,
    answers: { 200: views.BATCH },
    handle: async (api, { principal, body, caller, traceparent, refused }) => {
      const answers = await api.createBatch(principal, body, { caller, traceparent });
      return ok({ data: answers.map((answer) => (answer.kind === "call" ? answer.view : refused(answer.error))) });
    },
  },
  {
    operation: "updateCall",
    method: "POST",
    path: "/v1/calls/:id/updates",
    summary: "Tell how far the work of a submitted call is, by a runner key of its binding",
    body: UPDATE_CALL,
    answers: { 200: views.EVENT },
    handle: async (api, { runner, param, body }) => ok(await api.updateCall(runner, param("id"), body)),
  },
  {
    operation: "settleCall",
    method: "POST",
    path: "/v1/calls/:id/receipt",
    summary: "Settle a submitted call, by a runner key of its binding",
    body: SETTLE_CALL,
    bodyBytesMax: BODY_BYTES_MAX,
    answers: { 200: views.FINAL_RECEIPT },
    handle: async (api, { runner, param, body }) => ok(await api.settleCall(runner, param("id"), body)),
  },
  {
    operation: "listCalls",
    method: "GET",
    path: "/v1/calls",
    summary: "List calls, newest first",
    query: forms.LIST_CALLS,
    answers: { 200: views.pageOf(views.CALL) },
    handle: async (api, { principal, query }) => ok(await api.listCalls(principal, query)),
  },
  {
    operation: "getCall",
    method: "GET",
    path: "/v1/calls/:id",
    summary: "Read a call, or wait for it",
    query: forms.GET_CALL,
    answers: callAnswers,
    handle: async (api, { principal, param, query, caller }) => call(await api.getCall(principal, param("id"), query, { caller })),
  },
  {
    operation: "listCallEvents",
    method: "GET",
    path: "/v1/calls/:id/events",
    summary: "List a call's events, or follow them with Accept: text/event-stream",
    query: forms.LIST_EVENTS,
    answers: { 200: views.EVENTS },
    handle: async (api, { principal, param, query }) =>
      ok({ data: await api.listCallEvents(principal, param("id"), query), next_page: null }),
  },
  {
    operation: "readResult",
    method: "GET",
    path: "/v1/calls/:id/result",
    summary: "Read the whole result in pages",
    query: forms.READ_RESULT,
    answers: { 200: views.RESULT_PAGE },
    handle: async (api, { principal, param, query }) => ok(await api.readResult(principal, param("id"), query)),
  },
  {
    operation: "cancelCall",
    method: "POST",
    path: "/v1/calls/:id/cancel",
    summary: "Cancel a call",
    body: forms.CANCEL_CALL,
    bodyOptional: true,
    answers: callAnswers,
    handle: async (api, { principal, param, body }) => {
      const outcome = await api.cancelCall(principal, param("id"), body);
      return { status: outcome.answered ? 200 : 202, body: outcome.call };
    },
  },
  {
    operation: "confirmCall",
    method: "POST",
    path: "/v1/calls/:id/confirmation",
    summary: "Allow or deny a call that waits for a person",
    body: forms.CONFIRM_CALL,
    answers: { 200: views.CALL },
    handle: async (api, { principal, param, body }) => ok(await api.confirmCall(principal, param("id"), body)),
  },
  {
    operation: "reconcileCall",
    method: "POST",
    path: "/v1/calls/:id/reconcile",
    summary: "Say what became of a call whose outcome is unknown",
    body: forms.RECONCILE_CALL,
    bodyBytesMax: BODY_BYTES_MAX,
    answers: { 200: views.CALL },
    handle: async (api, { principal, param, body }) => ok(await api.reconcileCall(principal, param("id"), body)),
  },
  {
    operation: "listBindings",
    method: "GET",
    path: "/v1/bindings",
    summary: "List bindings",
    query: forms.PAGE,
    answers: { 200: views.pageOf(views.BINDING) },
    handle: async (api, { principal, query }) => ok(await api.listBindings(principal, query)),
  },
  {
    operation: "putBinding",
    method: "PUT",
    path: "/v1/bindings/:id",
    summary: "Register a binding",
    body: forms.PUT_BINDING,
    answers: { 200: views.BINDING, 201: views.BINDING },
    handle: async (api, { principal, param, body }) => {
      const outcome = await api.putBinding(principal, param("id"), body);
      return stored(outcome.created, outcome.binding);
    },
  },
  {
    operation: "getBinding",
    method: "GET",
    path: "/v1/bindings/:id",
    summary: "Read a binding",
    answers: { 200: views.BINDING },
    handle: async (api, { principal, param }) => ok(await api.getBinding(principal, param("id"))),
  },
  {
    operation: "createRunnerKey",
    method: "POST",
    path: "/v1/bindings/:id/keys",
    summary: "Make a runner key; it is shown once",
    body: forms.CREATE_RUNNER_KEY,
    bodyOptional: true,
    answers: { 201: views.CREATED_KEY },
    handle: async (api, { principal, param, body }) => stored(true, await api.createRunnerKey(principal, param("id"), body)),
  },
  {
    operation: "listRunnerKeys",
    method: "GET",
    path: "/v1/bindings/:id/keys",
    summary: "List the runner keys of a binding",
    query: forms.PAGE,
    answers: { 200: views.pageOf(views.KEY) },
    handle: async (api, { principal, param, query }) => ok(await api.listRunnerKeys(principal, param("id"), query)),
  },
  {
    operation: "getRunnerKey",
    method: "GET",
    path: "/v1/bindings/:id/keys/:key_id",
    summary: "Read what is known of a runner key",
    answers: { 200: views.KEY },
    handle: async (api, { principal, param }) => ok(await api.getRunnerKey(principal, param("id"), param("key_id"))),
  },
  {
    operation: "revokeRunnerKey",
    method: "DELETE",
    path: "/v1/bindings/:id/keys/:key_id",
    summary: "Revoke a runner key",
    answers: { 200: views.KEY },
    handle: async (api, { principal, param }) => ok(await api.revokeRunnerKey(principal, param("id"), param("key_id"))),
  },
  {
    operation: "createAgentKey",
    method: "POST",
    path: "/v1/keys",
    summary: "Make an agent key; it is shown once",
    body: forms.CREATE_AGENT_KEY,
    answers: { 201: views.CREATED_KEY },
    handle: async (api, { principal, body }) => stored(true, await api.createAgentKey(principal, body)),
  },
  {
    operation: "listAgentKeys",
    method: "GET",
    path: "/v1/keys",
    summary: "List agent keys",
    query: forms.PAGE,
    answers: { 200: views.pageOf(views.KEY) },
    handle: async (api, { principal, query }) => ok(await api.listAgentKeys(principal, query)),
  },
  {
    operation: "getAgentKey",
    method: "GET",
    path: "/v1/keys/:key_id",
    summary: "Read what is known of an agent key",
    answers: { 200: views.KEY },
    handle: async (api, { principal, param }) => ok(await api.getAgentKey(principal, param("key_id"))),
  },
  {
    operation: "revokeAgentKey",
    method: "DELETE",
    path: "/v1/keys/:key_id",
    summary: "Revoke an agent key",
    answers: { 200: views.KEY },
    handle: async (api, { principal, param }) => ok(await api.revokeAgentKey(principal, param("key_id"))),
  },
  {
    operation: "listToolsets",
    method: "GET",
    path: "/v1/toolsets",
    summary: "List toolsets, each in its latest version",
    query: forms.PAGE,
    answers: { 200: views.pageOf(views.TOOLSET) },
    handle: async (api, { principal, query }) => ok(await api.listToolsets(principal, query)),
  },
  {
    operation: "putToolset",
    method: "PUT",
    path: "/v1/toolsets/:id",
    summary: "Save the next version of a toolset",
    body: forms.PUT_TOOLSET,
    bodyBytesMax: BODY_BYTES_MAX,
    answers: { 200: views.TOOLSET, 201: views.TOOLSET },
    handle: async (api, { principal, param, body }) => {
      const outcome = await api.putToolset(principal, param("id"), body);
      return stored(outcome.created, outcome.toolset);
    },
  },
  {
    operation: "getToolset",
    method: "GET",
    path: "/v1/toolsets/:id",
    summary: "Read the latest version of a toolset",
    answers: { 200: views.TOOLSET },
    handle: async (api, { principal, param }) => ok(await api.getToolset(principal, param("id"))),
  },
  {
    operation: "listToolsetVersions",
    method: "GET",
    path: "/v1/toolsets/:id/versions",
    summary: "List the versions of a toolset",
    query: forms.PAGE,
    answers: { 200: views.pageOf(views.TOOLSET) },
    handle: async (api, { principal, param, query }) => ok(await api.listToolsetVersions(principal, param("id"), query)),
  },
  {
    operation: "getToolsetVersion",
    method: "GET",
    path: "/v1/toolsets/:id/versions/:version",
    summary: "Read one version of a toolset",
    answers: { 200: views.TOOLSET },
    handle: async (api, { principal, param }) => ok(await api.getToolset(principal, param("id"), param("version"))),
  },
  {
    operation: "listRunners",
    method: "GET",
    path: "/v1/runners",
    summary: "List connected runners",
    query: forms.PAGE,
    answers: { 200: views.pageOf(views.RUNNER) },
    handle: async (api, { principal, query }) => ok(await api.listRunners(principal, query)),
  },
];
