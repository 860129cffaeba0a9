/**
 * Ids of calls. With an idempotency key the id follows from (application, agent, key), so that the ledger's own compare at
 * version 0 decides between any number of concurrent repeats on any number of brokers, without a further write.
 */
import { createHash } from "node:crypto";
import { canonicalJson } from "../domain/canonical-json.js";
import type { CreateCallBody } from "./operations.js";

const ALPHABET = "abcdefghijklmnopqrstuvwxyz234567";

export function callIdFor(application: string, agent: string, idempotencyKey: string): string {
  const digest = createHash("sha256")
    .update(JSON.stringify([application, agent, idempotencyKey]))
    .digest();
  let id = "";
  for (let index = 0; index < 26; index += 1) {
    id += ALPHABET[(digest[index] ?? 0) & 31];
  }
  return `call_${id}`;
}

/** The same request: all fields but `wait_seconds`, as canonical JSON, before defaults. */
export function requestHash(body: CreateCallBody): string {
  const { wait_seconds: _wait, ...rest } = body;
  return createHash("sha256").update(canonicalJson(rest)).digest("hex");
}
