/**
 * The ledger's streams: made when absent, and checked at every start (L5).
 *
 * What is checked is what correctness rests on; everything else (placement, compression, description) is the operator's.
 */
import type { NatsConnection } from "@nats-io/nats-core";
import type { Clock } from "../../domain/ports/clock.js";
import { LedgerError } from "../../domain/ports/ledger.js";
import type { Names } from "./names.js";
import { type ApiAnswer, REPLICAS_NOT_SUPPORTED, type Requests, STREAM_NOT_FOUND, SUBJECTS_OVERLAP } from "./requests.js";

/** Smallest `max_payload` that takes the largest entry with its subject and headers (L7). */
const PAYLOAD_MIN = 1_048_576;
/** Between two tries to make a stream. */
const AGAIN_MS = 100;

interface StreamConfig {
  readonly name: string;
  readonly subjects: readonly string[];
  readonly retention: string;
  readonly storage: string;
  readonly discard: string;
  readonly num_replicas: number;
  readonly max_msgs: number;
  readonly max_bytes: number;
  readonly max_age: number;
  readonly max_msgs_per_subject: number;
  readonly max_msg_size: number;
  readonly allow_direct: boolean;
  readonly deny_delete: boolean;
}

function configOf(name: string, subjects: string, replicas: number, lastOfSubjectOnly: boolean): StreamConfig {
  return {
    name,
    subjects: [subjects],
    retention: "limits",
    storage: "file",
    discard: "new",
    num_replicas: replicas,
    max_msgs: -1,
    max_bytes: -1,
    max_age: 0,
    max_msgs_per_subject: lastOfSubjectOnly ? 1 : -1,
    max_msg_size: -1,
    allow_direct: false,
    deny_delete: false,
  };
}

/**
 * Makes or checks all streams. Rejects with {@link LedgerError} `misconfigured`, naming stream, field, and what to do;
 * with `unreachable` when JetStream has not answered after `timeoutMs`.
 */
export async function prepareStreams(
  connection: NatsConnection,
  requests: Requests,
  names: Names,
  replicas: number,
  clock: Clock,
  timeoutMs: number,
): Promise<void> {
  const payloadMax = connection.info?.max_payload ?? 0;
  if (payloadMax < PAYLOAD_MIN) {
    throw new LedgerError(
      "misconfigured",
      `nats-server at ${connection.getServer()} takes messages up to ${payloadMax} bytes: set max_payload to at least ${PAYLOAD_MIN}`,
    );
  }
  const wanted = [
    configOf(names.calls.stream, names.calls.subjects, replicas, false),
    configOf(names.index.stream, names.index.subjects, replicas, true),
    configOf(names.blobs.stream, names.blobs.subjects, replicas, true),
    configOf(names.lanes.stream, names.lanes.subjects, replicas, true),
  ];
  const end = clock.monotonic() + timeoutMs;
  for (const config of wanted) await prepareStream(requests, config, clock, end);
}

async function prepareStream(requests: Requests, wanted: StreamConfig, clock: Clock, end: number): Promise<void> {
  let refusal = "";
  do {
    const info = await before(end, clock, requests, requests.ask(`$JS.API.STREAM.INFO.${wanted.name}`));
    if (info.error === undefined) return checkConfig(wanted, info);
    if (info.error.err_code !== STREAM_NOT_FOUND) refusal = textOf(info);
    else {
      const made = await before(end, clock, requests, requests.ask(`$JS.API.STREAM.CREATE.${wanted.name}`, wanted));
      if (made.error === undefined) return checkConfig(wanted, made);
      refusal = textOf(made);
      if (isFinal(made)) throw new LedgerError("misconfigured", `the stream ${wanted.name} cannot be made: ${refusal}`);
    }
    // Another broker may be making it, or servers that should hold it may still be coming up: asked again until the time is over.
    await new Promise<void>((resolve) => clock.schedule(AGAIN_MS, resolve));
  } while (clock.monotonic() < end);
  throw new LedgerError("unreachable", `the stream ${wanted.name} could not be made in time: ${refusal}`);
}

/** Refusals to make a stream that waiting does not change: replicas without a cluster, subjects taken by another stream. */
function isFinal({ error }: ApiAnswer): boolean {
  return error?.err_code === REPLICAS_NOT_SUPPORTED || error?.err_code === SUBJECTS_OVERLAP;
}

async function before(end: number, clock: Clock, requests: Requests, asked: Promise<ApiAnswer>): Promise<ApiAnswer> {
  let timer: { cancel(): void } | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = clock.schedule(Math.max(0, end - clock.monotonic()), () => {
      const reason = requests.lastReason === "" ? "" : ` (${requests.lastReason})`;
      reject(new LedgerError("unreachable", `JetStream does not answer${reason}: is it enabled, and has its cluster a leader?`));
    });
  });
  try {
    return await Promise.race([asked, late]);
  } finally {
    timer?.cancel();
    asked.catch(() => undefined);
  }
}

function textOf({ error }: ApiAnswer): string {
  return `${error?.err_code ?? error?.code ?? "?"} ${error?.description ?? "unknown error"}`;
}

function checkConfig(wanted: StreamConfig, { config }: ApiAnswer): void {
  const found = (config ?? {}) as Partial<Record<keyof StreamConfig, unknown>> & Readonly<Record<string, unknown>>;
  const faults: string[] = [];
  const unlimited: readonly (keyof StreamConfig)[] = ["max_msgs", "max_bytes", "max_age", "max_msg_size"];
  for (const field of unlimited)
    if (typeof found[field] === "number" && found[field] > 0) faults.push(`${field} is ${found[field]}, must be unlimited`);
  const perSubject = (found.max_msgs_per_subject as number | undefined) ?? -1;
  if (Math.max(perSubject, -1) !== wanted.max_msgs_per_subject && !(perSubject === 0 && wanted.max_msgs_per_subject === -1)) {
    faults.push(`max_msgs_per_subject is ${perSubject}, must be ${wanted.max_msgs_per_subject}`);
  }
  for (const field of ["retention", "storage", "discard", "num_replicas"] as const) {
    if (found[field] !== wanted[field]) faults.push(`${field} is ${String(found[field])}, must be ${wanted[field]}`);
  }
  for (const field of ["allow_direct", "deny_delete", "deny_purge", "sealed"] as const)
    if (found[field] === true) faults.push(`${field} is on, must be off`);
  if (JSON.stringify(found.subjects) !== JSON.stringify(wanted.subjects)) {
    faults.push(`subjects are ${JSON.stringify(found.subjects)}, must be ${JSON.stringify(wanted.subjects)}`);
  }
  for (const field of ["mirror", "sources", "subject_transform", "republish"]) {
    if (found[field] !== undefined && found[field] !== null) faults.push(`${field} is set, must not be`);
  }
  if (faults.length === 0) return;
  throw new LedgerError(
    "misconfigured",
    `the stream ${wanted.name} is not safe for calls: ${faults.join("; ")}. Change it with "nats stream edit ${wanted.name}"`,
  );
}
