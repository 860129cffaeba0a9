/** What answers look like, for `/openapi.json`. A test holds them against the answers of every route. */

import { CALL_STATES, EVENT_NAMES, SETTLED_STATES } from "../../domain/call-view.js";
import { SCOPES } from "../../domain/ports/access.js";
import { BINDING_KINDS } from "../../domain/ports/catalog.js";
import type { Schema } from "../shared/form.js";

/** The schema of an answer, with the sentence that OpenAPI wants. */
export interface AnswerSchema extends Schema {
  readonly description: string;
}

const text: Schema = { type: "string" };
const count: Schema = { type: "integer", minimum: 0 };
const flag: Schema = { type: "boolean" };
const time: Schema = { type: "string", format: "date-time" };
const textOrNull: Schema = { type: ["string", "null"] };
const timeOrNull: Schema = { type: ["string", "null"], format: "date-time" };

/** An object that has all of `properties` and maybe those of `optional`. */
function object(
  description: string,
  properties: Readonly<Record<string, Schema>>,
  optional: Readonly<Record<string, Schema>> = {},
): AnswerSchema {
  return {
    type: "object",
    description,
    required: Object.keys(properties),
    properties: { ...properties, ...optional },
    additionalProperties: false,
  };
}

function orNull(schema: AnswerSchema): Schema {
  return { anyOf: [schema, { type: "null" }] };
}

/** One thing that is wrong in an input; `path` is a JSON Pointer. */
const DETAIL = object("A fault.", { path: text, expected: text, actual: text });
const DETAILS: Schema = { type: "array", items: DETAIL };

/** A call. */
export const CALL = object(
  "The call.",
  {
    type: { const: "call" },
    id: text,
    state: { type: "string", enum: [...CALL_STATES] },
    toolset: text,
    toolset_version: count,
    tool: text,
    binding: text,
    agent: textOrNull,
    subject: textOrNull,
    session: textOrNull,
    attempt: count,
    waiting_for: { enum: ["runner", "handler", "capacity", "confirmation", "order", null] },
    created_at: time,
    deadline_at: timeOrNull,
    settled_at: timeOrNull,
    receipt: orNull(
      object("The runner's statement.", { attempt: count, fence: count, outcome: text, runner_id: text, received_at: time, digest: text }),
    ),
    result_ref: { type: ["string", "null"], description: "The result's address when it is left out for its size." },
    error: orNull(
      object("Why it did not succeed.", {
        code: text,
        message: text,
        retryable: flag,
        retry_after_seconds: { type: ["number", "null"] },
        details: DETAILS,
      }),
    ),
    model_result: orNull(object("What the model sees.", { text, bytes_before: count, bytes_after: count, truncated: flag })),
  },
  { result: { description: "Null until there is one; left out over 256 KiB." } },
);

/** A call whose turn has no answer yet. */
export const OPEN_CALL: AnswerSchema = { ...CALL, description: "The call; it is still open." };

/** An event of a call. */
export const EVENT = object("An event.", {
  type: { const: "event" },
  call_id: text,
  seq: { type: "integer", minimum: 1 },
  at: time,
  event: { type: "string", enum: [...EVENT_NAMES] },
  data: { type: "object" },
});

/** A final receipt that took effect. */
export const FINAL_RECEIPT = object("The receipt, and what it led to.", {
  type: { const: "receipt" },
  call_id: text,
  outcome: { type: "string", enum: ["succeeded", "failed", "cancelled"] },
  digest: text,
  state: { type: "string", enum: [...SETTLED_STATES] },
  settled_at: time,
});

/** A call's events. */
export const EVENTS = pageOf(EVENT);

/** A part of a result's text. */
export const RESULT_PAGE = object("A page of the compact JSON of the result.", { text, next_offset: count, eof: flag });

/** A binding. */
export const BINDING = object(
  "The binding.",
  {
    id: text,
    name: text,
    kind: { type: "string", enum: [...BINDING_KINDS] },
    created_at: time,
  },
  { limits: object("How many calls run at once, and how many wait.", {}, { concurrency: count, queue: count }) },
);

const TOOL = object(
  "A tool.",
  {
    name: text,
    description: text,
    input_schema: { description: "A JSON Schema." },
    output_schema: { description: "A JSON Schema, or null." },
    binding: text,
    behaviour: { type: "string", enum: ["read_only", "write"] },
    confirmation: { type: "string", enum: ["never", "always"] },
    result_semantics: { type: "string", enum: ["completion", "submission"] },
    max_result_context_bytes: count,
    version: { type: "string", description: "Of the handler." },
    timeout_seconds: count,
    idempotent: flag,
    cancellable: flag,
    scopes: { type: "array", items: text },
  },
  { submission_timeout_seconds: count, max_concurrency: count, max_queue: count },
);

/** A version of a toolset. */
export const TOOLSET = object("The toolset's version.", {
  id: text,
  version: { type: "integer", minimum: 1 },
  content_hash: text,
  created_at: time,
  tools: { type: "array", items: TOOL },
});

const keyFields = { id: text, name: textOrNull, created_at: time, revoked_at: timeOrNull };
const keyKinds = { scopes: { type: "array", items: { type: "string", enum: [...SCOPES] } }, binding: text };

/** What is known of a key. */
export const KEY = object("The key, without its secret.", keyFields, keyKinds);
/** A key that was just made. */
export const CREATED_KEY = object("The key; it is never shown again.", { ...keyFields, key: text }, keyKinds);

/** A connected runner. */
export const RUNNER = object("A runner.", {
  runner_id: text,
  binding: text,
  subject: textOrNull,
  broker_id: text,
  session_epoch: count,
  transport: text,
  sdk: text,
  connected_at: time,
  slots: count,
  grants_held: count,
  handlers: { type: "array", items: object("A handler.", { tool: text, version: text, idempotent: flag, cancellable: flag }) },
});

/** A page of a list. */
export function pageOf(item: AnswerSchema): AnswerSchema {
  return object("A page.", { data: { type: "array", items: item }, next_page: { type: ["string", "null"] } });
}

/** Every refusal. */
export const ERROR: AnswerSchema = {
  type: "object",
  description: "Refused.",
  required: ["type", "error", "request_id"],
  additionalProperties: false,
  properties: {
    type: { const: "error" },
    // Some codes add fields of their own, such as current_version.
    error: {
      type: "object",
      required: ["type", "code", "message", "details"],
      properties: { type: text, code: text, message: text, details: DETAILS },
    },
    request_id: text,
  },
};

/** The calls of a batch, in order. */
export const BATCH = object("The calls, or why there are none, in the order of the list.", {
  data: { type: "array", items: { anyOf: [CALL, ERROR] } },
});

/** `/healthz`. */
export const ALIVE = object("The process runs.", { status: { const: "ok" }, version: text });
/** `/readyz`. */
export const READY = object("The broker serves, or what keeps it from that.", {
  status: { type: "string", enum: ["ready", "not_ready"] },
  problems: { type: "array", items: object("A problem.", { part: text, message: text }) },
});
