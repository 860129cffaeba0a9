/** The form of what the holders of a binding's key may say about its submitted calls. */

import { ERROR_DETAILS_MAX, ERROR_MESSAGE_CHARACTERS_MAX, IDEMPOTENCY_KEY_CHARACTERS_MAX } from "../../domain/limits.js";
import type { FinalReceiptBody, UpdateBody } from "../../wire/operations.js";
import { defineForm, type Schema } from "./form.js";
import { name } from "./forms.js";

const FENCE_MAX = Number.MAX_SAFE_INTEGER;

/** `POST /v1/calls/{id}/updates`. */
export const UPDATE_CALL = defineForm<UpdateBody>("body", {
  text: { type: "string", description: "For people. With `data` at most 16 KiB." },
  percentage: { type: "number", minimum: 0, maximum: 100, description: "How far the work is." },
  data: { description: "Any JSON." },
  idempotency_key: name("The same key and update are stored once; another update is refused.", IDEMPOTENCY_KEY_CHARACTERS_MAX),
});

const failure: Schema = {
  type: "object",
  description: "With `failed`: why.",
  properties: {
    code: {
      type: "string",
      pattern: "^[a-z][a-z0-9_]{0,63}$",
      "x-expected": "a lower-case letter, then at most 63 lower-case letters, digits or _",
      description: "Of the business, such as `order_unknown`.",
    },
    message: { type: "string", maxLength: ERROR_MESSAGE_CHARACTERS_MAX, description: "For people and models." },
    details: {
      type: "array",
      maxItems: ERROR_DETAILS_MAX,
      items: {
        type: "object",
        properties: { path: text(512), expected: text(512), actual: text(512) },
        required: ["path", "expected", "actual"],
        additionalProperties: false,
      },
    },
  },
  required: ["code", "message"],
  additionalProperties: false,
};

/** `POST /v1/calls/{id}/receipt`. */
export const SETTLE_CALL = defineForm<FinalReceiptBody>(
  "body",
  {
    outcome: { type: "string", enum: ["succeeded", "failed", "cancelled"] },
    result: { description: "With `succeeded`: the result, checked against the tool's output schema. Default null." },
    error: failure,
    message: { type: "string", maxLength: ERROR_MESSAGE_CHARACTERS_MAX, description: "With `cancelled`: why." },
    fence: {
      type: "integer",
      minimum: 1,
      maximum: FENCE_MAX,
      description:
        "Of the grant that the work was begun for. An older one than the call's newest is refused; with the newest one the receipt is taken also before the handle has arrived.",
    },
  },
  ["outcome"],
);

function text(maxLength: number): Schema {
  return { type: "string", maxLength };
}
