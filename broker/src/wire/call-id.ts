/**
 * Ids of calls. With an idempotency key the id follows from (application, agent, key), so that the ledger's own compare at
 * version 0 decides between any number of concurrent repeats on any number of brokers, without a further write.
 */
import { hash } from "node:crypto";
import { canonicalJson } from "../domain/canonical-json.js";
import { idText } from "../domain/id-text.js";
import type { CreateCallBody } from "./operations.js";

export function callIdFor(application: string, agent: string, idempotencyKey: string): string {
  return idText("call", hash("sha256", JSON.stringify([application, agent, idempotencyKey]), "buffer"));
}

/** The same request: all fields but `wait_seconds`, as canonical JSON, before defaults. */
export function requestHash(body: CreateCallBody): string {
  return hash("sha256", canonicalJson({ ...body, wait_seconds: undefined }), "hex");
}
