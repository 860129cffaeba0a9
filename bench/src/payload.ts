/** The arguments that are echoed. */

/** Size of the JSON of the arguments, in bytes. */
export const PAYLOAD_BYTES = 200;

const FRAME = '{"text":""}';

/** An object whose compact JSON has {@link PAYLOAD_BYTES} bytes. */
export const PAYLOAD: { readonly text: string } = { text: "e".repeat(PAYLOAD_BYTES - FRAME.length) };

export const PAYLOAD_JSON = JSON.stringify(PAYLOAD);

/** What the tool takes and gives. */
export const PAYLOAD_SCHEMA = {
  type: "object",
  properties: { text: { type: "string" } },
  required: ["text"],
  additionalProperties: false,
} as const;
