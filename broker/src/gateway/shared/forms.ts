/** The form of every request that agents can make. */

import { CALL_STATES, type CallFilter } from "../../domain/call-view.js";
import {
  ATTEMPTS_MAX,
  BATCH_CALLS_MAX,
  IDEMPOTENCY_KEY_CHARACTERS_MAX,
  LIMIT_MAX,
  RESULT_PAGE_BYTES_DEFAULT,
  RESULT_PAGE_BYTES_MAX,
  TIMEOUT_SECONDS_MAX,
  TIMEOUT_SECONDS_MIN,
  WAIT_SECONDS_MAX,
} from "../../domain/limits.js";
import { SCOPES, type Scope } from "../../domain/ports/access.js";
import { BINDING_KINDS, type BindingKind, type Json, type Limits, type PageRequest } from "../../domain/ports/catalog.js";
import type { CancelMode, CreateCallBody, ReconcileOutcome, WaitGoal } from "../../wire/operations.js";
import { defineForm, type Form, type Schema } from "./form.js";

/** Longest text that names something: a subject, a session, an agent. */
export const NAME_CHARACTERS_MAX = 256;
/** Longest text that people write for people: a reason, a note. */
export const NOTE_CHARACTERS_MAX = 4_096;

const UINT32_MAX = 4_294_967_295;

/** Text that can be an id, a key or a name: bounded, without control characters and halves of surrogate pairs. */
export const name = (description: string, maxLength = NAME_CHARACTERS_MAX): Schema => ({
  type: "string",
  minLength: 1,
  maxLength,
  pattern: "^[^\\p{Cc}\\p{Cs}]*$",
  "x-expected": "text without control characters and unpaired surrogates",
  description,
});
const integer = (minimum: number, maximum: number, description: string): Schema => ({ type: "integer", minimum, maximum, description });
const note = (description: string): Schema => ({ type: "string", maxLength: NOTE_CHARACTERS_MAX, description });

const waitSeconds: Schema = {
  type: "number",
  minimum: 0,
  maximum: WAIT_SECONDS_MAX,
  description: "How long to wait for the turn's answer. Default 0.",
};
const idempotencyKey = name("The same key and request give the same answer; another request is refused.", IDEMPOTENCY_KEY_CHARACTERS_MAX);
const afterSeq = integer(0, UINT32_MAX, "Only events with a higher `seq`. Default 0.");

const page = {
  limit: integer(1, 100, "Items on a page. Default 20."),
  page: { type: "string", minLength: 1, maxLength: 4_096, description: "The `next_page` of the page before; goes with the same filters." },
} satisfies Record<string, Schema>;

/** No fields at all. */
export const NO_QUERY = defineForm<Record<string, never>>("query", {});
/** No fields at all. */
export const NO_BODY = defineForm<Record<string, never>>("body", {});

const createCall = {
  toolset: name("Id of the toolset."),
  tool: name("Name of the tool in it."),
  arguments: { description: "What the tool is called with; must satisfy its input schema." },
  toolset_version: integer(1, UINT32_MAX, "Default: the latest."),
  agent: name("Id of the agent. Default: the key's id stands for it."),
  release: integer(1, UINT32_MAX, "A release of the agent."),
  subject: name("The end user on whose behalf the call runs. Needed on browser and desktop bindings."),
  session: name("The agent's session."),
  idempotency_key: idempotencyKey,
  timeout_seconds: integer(TIMEOUT_SECONDS_MIN, TIMEOUT_SECONDS_MAX, "From acceptance to settlement. May only shorten the tool's."),
  wait_seconds: waitSeconds,
  ordering_key: name("Calls with the same key run one at a time, in order."),
  priority: { type: "string", enum: ["interactive", "background"], description: "Default interactive." },
  max_attempts: integer(
    1,
    ATTEMPTS_MAX,
    "Default: 3. A tool that is not safe to repeat is tried again only after a person said that it was not applied.",
  ),
  audience: name("For whom the result is shown."),
} satisfies Record<keyof CreateCallBody, Schema>;

/** `POST /v1/calls`. */
export const CREATE_CALL = defineForm<CreateCallBody>("body", createCall, ["toolset", "tool", "arguments"]);

const { wait_seconds: _ofTheBatch, ...batchCall } = createCall;

/** One call of a batch: it waits with the others, so it names no wait of its own. */
export const BATCH_CALL = defineForm<Omit<CreateCallBody, "wait_seconds">>("body", batchCall, ["toolset", "tool", "arguments"]);

const batchOf = (calls: Schema): Form<BatchBody> =>
  defineForm<BatchBody>(
    "body",
    {
      calls: {
        type: "array",
        minItems: 1,
        maxItems: BATCH_CALLS_MAX,
        description: "Each is a call of its own, with its own key.",
        ...calls,
      },
      wait_seconds: { ...waitSeconds, description: "How long to wait for the answers of all calls together. Default 0." },
    },
    ["calls"],
  );

/** The body of `POST /v1/calls:batch`; its calls are unchecked. */
export interface BatchBody {
  readonly calls: readonly unknown[];
  readonly wait_seconds?: number | undefined;
}

/** `POST /v1/calls:batch`. Its calls are checked one by one, so that a bad one harms no other. */
export const CREATE_BATCH: Form<BatchBody> = { schema: batchOf({ items: BATCH_CALL.schema }).schema, check: batchOf({}).check };

/** `GET /v1/calls/{id}`. */
export const GET_CALL = defineForm<{ readonly wait_seconds?: number | undefined; readonly wait_for?: WaitGoal | undefined }>("query", {
  wait_seconds: waitSeconds,
  wait_for: {
    type: "string",
    enum: ["answer", "settled"],
    description:
      "What ends the wait: `answer`, the first of settled, submitted and needs_reconciliation, or `settled`, such as the final receipt of a submitted call. Default answer.",
  },
});

/** `GET /v1/calls`. */
export const LIST_CALLS = defineForm<CallFilter & PageRequest>("query", {
  state: { type: "string", enum: [...CALL_STATES] },
  tool: name("Only calls of this tool."),
  toolset: name("Only calls of this toolset."),
  binding: name("Only calls on this binding."),
  agent: name("Only calls of this agent."),
  subject: name("Only calls for this subject."),
  session: name("Only calls of this session."),
  ...page,
});

/** `GET /v1/calls/{id}/events`. */
export const LIST_EVENTS = defineForm<{ readonly after_seq?: number | undefined }>("query", { after_seq: afterSeq });

/** `GET /v1/calls/{id}/result`. */
export const READ_RESULT = defineForm<{ readonly offset?: number | undefined; readonly max_bytes?: number | undefined }>("query", {
  offset: integer(0, UINT32_MAX, "The `next_offset` of the page before, in bytes. Default 0."),
  max_bytes: integer(1, RESULT_PAGE_BYTES_MAX, `Default ${RESULT_PAGE_BYTES_DEFAULT}.`),
});

/** `POST /v1/calls/{id}/cancel`. */
export const CANCEL_CALL = defineForm<{ readonly mode?: CancelMode | undefined; readonly reason?: string | undefined }>("body", {
  mode: {
    type: "string",
    enum: ["kill", "skip", "killnowait"],
    description:
      "`kill` waits for the runner's answer, `skip` settles now and lets it run, `killnowait` settles now and tells the runner. Default kill.",
  },
  reason: note("For the call's events."),
});

/** `POST /v1/calls/{id}/confirmation`. */
export const CONFIRM_CALL = defineForm<{ readonly decision: "allow" | "deny" }>(
  "body",
  { decision: { type: "string", enum: ["allow", "deny"] } },
  ["decision"],
);

/** `POST /v1/calls/{id}/reconcile`. */
export const RECONCILE_CALL = defineForm<{
  readonly outcome: ReconcileOutcome;
  readonly result?: Json | undefined;
  readonly note?: string | undefined;
}>(
  "body",
  {
    outcome: { type: "string", enum: ["applied", "not_applied", "abandon"] },
    result: { description: "With `applied`: the result, checked against the tool's output schema." },
    note: note("Why, for the call's events."),
  },
  ["outcome"],
);

/** Any list without filters. */
export const PAGE = defineForm<PageRequest>("query", page);

/** `PUT /v1/bindings/{id}`. */
export const PUT_BINDING = defineForm<{
  readonly name: string;
  readonly kind: BindingKind;
  readonly limits?: Limits | undefined;
  readonly idempotency_key?: string | undefined;
}>(
  "body",
  {
    name: name("For people."),
    kind: { type: "string", enum: [...BINDING_KINDS] },
    limits: {
      type: "object",
      additionalProperties: false,
      description: "Default: none. Counts from the next call on.",
      properties: {
        concurrency: integer(1, LIMIT_MAX, "Calls that run at once."),
        queue: integer(0, LIMIT_MAX, "Calls that wait before more are refused with 429."),
      },
    },
    idempotency_key: idempotencyKey,
  },
  ["name", "kind"],
);

/** `PUT /v1/toolsets/{id}`. The tools themselves are checked by the catalog, which names every fault. */
export const PUT_TOOLSET = defineForm<{
  readonly base_version: number;
  readonly tools: readonly unknown[];
  readonly idempotency_key?: string | undefined;
}>(
  "body",
  {
    base_version: integer(0, UINT32_MAX, "The version that this save started from; 0 for the first."),
    tools: { type: "array", description: "All tools of the next version." },
    idempotency_key: idempotencyKey,
  },
  ["base_version", "tools"],
);

/** `POST /v1/keys`. */
export const CREATE_AGENT_KEY = defineForm<{ readonly name?: string | undefined; readonly scopes: readonly Scope[] }>(
  "body",
  {
    name: name("For people."),
    scopes: { type: "array", items: { type: "string", enum: [...SCOPES] }, minItems: 1, maxItems: SCOPES.length },
  },
  ["scopes"],
);

/** `POST /v1/bindings/{id}/keys`. */
export const CREATE_RUNNER_KEY = defineForm<{ readonly name?: string | undefined }>("body", { name: name("For people.") });
