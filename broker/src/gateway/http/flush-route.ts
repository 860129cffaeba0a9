/**
 * `POST /v1/runner/flush`: receipts of a page that closes, in a request that outlives it.
 *
 * A page that is being left can send no more than what a browser sends without asking first: text, at most 64 KiB, without headers of
 * its own. So the credential is in the body, and the content type is `text/plain`. Invariants: an origin that may not open a session
 * may not flush either; no cookie or other ambient right counts, so any origin that is answered at all may read the answer.
 */
import { type Receipt, runnerFrameCodec } from "@toolrunner/proto";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { BrokerError } from "../../domain/broker-error.js";
import type { Json } from "../../domain/ports/catalog.js";
import type { FlushedReceipt, RunnerFlush } from "../../wire/operations.js";
import { faultBody, faultFrom } from "../shared/fault.js";
import { defineForm, readQuery, type Schema } from "../shared/form.js";
import { NO_QUERY } from "../shared/forms.js";
import { jsonOf, type RawBody } from "./body.js";
import { ERROR } from "./view-schemas.js";

/** What browsers let a closing page send: 64 KiB. */
export const FLUSH_BODY_BYTES_MAX = 65_536;
/** Receipts of one request. */
export const FLUSH_RECEIPTS_MAX = 256;
/** Where it is. */
export const FLUSH_PATH = "/v1/runner/flush";
const TEXT_CHARACTERS_MAX = 256;
/** Tokens are longer than keys. */
const CREDENTIAL_CHARACTERS_MAX = 8_192;

interface FlushBody {
  readonly credential: string;
  readonly binding: string;
  readonly subject?: string | undefined;
  readonly runner_id: string;
  readonly receipts: readonly Json[];
}

const text = (description: string, maxLength = TEXT_CHARACTERS_MAX): Schema => ({ type: "string", minLength: 1, maxLength, description });

const FLUSH = defineForm<FlushBody>(
  "body",
  {
    credential: text("A runner's key or token.", CREDENTIAL_CHARACTERS_MAX),
    binding: text("Id of the binding that the runner serves."),
    subject: { type: "string", maxLength: TEXT_CHARACTERS_MAX, description: "The end user that the runner acts for; none on a backend." },
    runner_id: text("The runner's id."),
    receipts: {
      type: "array",
      minItems: 1,
      maxItems: FLUSH_RECEIPTS_MAX,
      items: { type: "object" },
      description: "Receipts as in the protocol's `receipt` frame, in canonical JSON of protobuf.",
    },
  },
  ["credential", "binding", "runner_id", "receipts"],
);

const codec = runnerFrameCodec("json");

/** Adds the route. */
export function addFlushRoute(scope: FastifyInstance, runners: RunnerFlush): void {
  const allowReading = async (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    const { origin } = request.headers;
    // It passed the check of origins before.
    if (origin !== undefined) reply.header("access-control-allow-origin", origin).header("vary", "Origin");
  };
  // No agent's key: the credential is in the body.
  const config: object = { open: true, bodyBytesMax: FLUSH_BODY_BYTES_MAX };
  const schema = {
    operationId: "flushReceipts",
    summary: "Bring the receipts of a page that closes",
    description:
      "The body is JSON under the content type text/plain, and holds the credential: a page that is left can send nothing else. Answers each receipt in order.",
    security: [],
    consumes: ["text/plain"],
    body: FLUSH.schema,
    response: { 200: ANSWER, "4xx": ERROR, "5xx": ERROR },
  };
  scope.post(FLUSH_PATH, { config, schema, onRequest: allowReading }, async (request, reply) => {
    NO_QUERY.check(readQuery(request.query as Readonly<Record<string, unknown>>, NO_QUERY.schema));
    const given = jsonOf(request.body as RawBody | undefined, request.headers, FLUSH_BODY_BYTES_MAX, "text/plain");
    const body = FLUSH.check(given ?? {});
    const receipts = body.receipts.map(readReceipt);
    const { credential, binding, subject = "", runner_id: runnerId } = body;
    const taken = await runners.flush({ credential, binding, subject, runnerId, receipts });
    const data = taken.map((one, index) => ({
      call_id: receipts[index]?.callId ?? "",
      grant_id: receipts[index]?.grantId ?? "",
      ...answerOf(one, request.id),
    }));
    return reply.header("content-type", "application/json; charset=utf-8").header("cache-control", "no-store").send({ data });
  });
  scope.route({
    method: "OPTIONS",
    url: FLUSH_PATH,
    schema: { hide: true },
    handler: (_request, reply) => reply.code(204).header("allow", "POST, OPTIONS").send(),
  });
}

function readReceipt(json: Json, index: number): Receipt {
  const decoded = codec.decode(JSON.stringify({ receipt: json }));
  if (decoded.kind === "frame" && decoded.frame.frame?.$case === "receipt") return decoded.frame.frame.value;
  const why = decoded.kind === "malformed" ? `: ${decoded.message}` : "";
  throw new BrokerError("body_invalid", `The body's receipts[${index}] is not a receipt as in the protocol's frame${why}.`, {
    details: [{ path: `/receipts/${index}`, expected: "a receipt in canonical JSON of protobuf", actual: "another form" }],
  });
}

function answerOf(taken: FlushedReceipt, requestId: string): object {
  switch (taken.kind) {
    case "taken":
      return { disposition: taken.disposition, error: null };
    case "refused":
      return { disposition: null, error: errorOf(new BrokerError("body_invalid", `${taken.message}.`), requestId) };
    case "failed":
      return { disposition: null, error: errorOf(taken.error, requestId) };
  }
}

const errorOf = (error: unknown, requestId: string): unknown =>
  (faultBody(faultFrom(error), requestId) as { readonly error: unknown }).error;

const ANSWER = {
  type: "object",
  description: "What came of each receipt. One without a disposition is sent again on the runner's next session.",
  required: ["data"],
  properties: {
    data: {
      type: "array",
      items: {
        type: "object",
        required: ["call_id", "grant_id", "disposition", "error"],
        additionalProperties: false,
        properties: {
          call_id: { type: "string" },
          grant_id: { type: "string" },
          disposition: { enum: ["settled", "repeated", "evidence", "expired", null] },
          error: { type: ["object", "null"], description: "As in error answers." },
        },
      },
    },
  },
  additionalProperties: false,
} as const;
