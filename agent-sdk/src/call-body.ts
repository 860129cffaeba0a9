/** A request in the fields of the HTTP interface. */

import type { CallRequest } from "./client-types.js";
import { jsonArguments } from "./json-text.js";

/** The longest wait that the broker takes. */
const WAIT_SECONDS_MAX = 60;

/** Whole milliseconds, so that the number has no more decimals than an address may. */
export function secondsOf(waitMs: number): number {
  return Math.min(WAIT_SECONDS_MAX * 1_000, Math.ceil(waitMs)) / 1_000;
}

/** All fields but the wait. A request without a key gets a random one, so that its repeats are one call. */
export function createBody(request: CallRequest): Readonly<Record<string, unknown>> {
  return {
    toolset: request.toolset,
    tool: request.tool,
    arguments: jsonArguments(request.arguments),
    toolset_version: request.toolsetVersion,
    agent: request.agent,
    release: request.release,
    subject: request.subject,
    session: request.session,
    idempotency_key: request.idempotencyKey ?? randomKey(),
    timeout_seconds: request.timeoutSeconds,
    ordering_key: request.orderingKey,
    priority: request.priority,
    max_attempts: request.maxAttempts,
    audience: request.audience,
  };
}

/** 122 bits at random or more. */
export function randomKey(): string {
  // Missing in pages that are not served securely.
  if (typeof crypto.randomUUID === "function") return `sdk_${crypto.randomUUID()}`;
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `sdk_${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
