/**
 * One KV bucket, spoken to over JetStream itself: every write carries an id of its own, so that a write whose answer was lost
 * is repeated unchanged and told apart from another's.
 *
 * Invariants:
 * 1. Reads go to the leader (`allow_direct: false`): what was acknowledged is seen (L5).
 * 2. A write ends as stored or refused by its expected revision. What does not become known within {@link PATIENCE_MS} is
 *    reported as `unreachable`: it may have been stored (L2).
 */
import { randomUUID } from "node:crypto";
import {
  JetStreamApiError,
  type JetStreamClient,
  type JetStreamManager,
  jetstream,
  jetstreamManager,
  type PubAck,
  type StoredMsg,
  type StreamConfig,
} from "@nats-io/jetstream";
import { Kvm } from "@nats-io/kv";
import { headers, type MsgHdrs, type NatsConnection } from "@nats-io/nats-core";
import { BUS_MESSAGE_BYTES_MAX, BusError, type RegistryRecord } from "../../domain/ports/bus.js";

export interface KvBucketOptions {
  readonly connection: NatsConnection;
  /** `[A-Za-z0-9_-]+` */
  readonly bucket: string;
  readonly replicas: number;
}

export interface KvBucket {
  /** The stream behind the bucket. */
  readonly stream: string;
  /** What a key's subject begins with. */
  readonly subjectPrefix: string;
  readonly manager: JetStreamManager;
  /** Stores `value` when the key's revision is `expected` (undefined: whatever it is); undefined when it is not. */
  write(key: string, value: string, expected: number | undefined): Promise<number | undefined>;
  get(key: string): Promise<RegistryRecord | undefined>;
  /** With `expected`: only while the key's revision is that one. */
  delete(key: string, expected?: number): Promise<void>;
}

/** How long a write or read is repeated. */
export const PATIENCE_MS = 5_000;
const ATTEMPT_MS = 2_000;
const BACK_OFF_MS = 50;
const BACK_OFF_MAX_MS = 1_000;

const WRONG_LAST_SEQUENCE = 10_071;
const OPERATION_HEADER = "KV-Operation";
const MESSAGE_ID_HEADER = "Nats-Msg-Id";

/** Whether a stored message says that its key is gone. */
export function isMarker(message: { readonly headers?: MsgHdrs | undefined }): boolean {
  const operation = message.headers?.get(OPERATION_HEADER);
  return operation === "DEL" || operation === "PURGE";
}

/** Opens the bucket, made when absent. Rejects with `misconfigured` when it exists with settings that break the rules. */
export async function openKvBucket({ connection, bucket, replicas }: KvBucketOptions): Promise<KvBucket> {
  const stream = `KV_${bucket}`;
  const subjectPrefix = `$KV.${bucket}.`;
  const client: JetStreamClient = jetstream(connection, { timeout: ATTEMPT_MS });
  const manager = await repeat(`open ${bucket}`, () => jetstreamManager(connection, { timeout: ATTEMPT_MS, checkAPI: false }));
  const info = await repeat(`open ${bucket}`, async () => {
    await new Kvm(client).create(bucket, { history: 1, replicas, allow_direct: false, description: "Shared by ToolRunner's brokers" });
    return manager.streams.info(stream);
  });
  checkConfig(bucket, info.config, replicas);

  async function last(key: string): Promise<StoredMsg | undefined> {
    return (await repeat(`read ${key}`, () => manager.streams.getMessage(stream, { last_by_subj: subjectPrefix + key }))) ?? undefined;
  }

  /** The acknowledged revision, or undefined when another write holds the place. */
  async function publish(key: string, value: string, expected: number | undefined, operation?: string): Promise<number | undefined> {
    const messageId = randomUUID();
    let repeated = false;
    const ack = await repeat(`write ${key}`, async (): Promise<PubAck | "refused"> => {
      const extra = operation === undefined ? undefined : headers();
      extra?.set(OPERATION_HEADER, operation ?? "");
      try {
        return await client.publish(subjectPrefix + key, value, {
          msgID: messageId,
          timeout: ATTEMPT_MS,
          ...(extra === undefined ? {} : { headers: extra }),
          ...(expected === undefined ? {} : { expect: { lastSubjectSequence: expected } }),
        });
      } catch (error) {
        if (error instanceof JetStreamApiError && error.code === WRONG_LAST_SEQUENCE) return "refused";
        repeated = true;
        throw error;
      }
    });
    if (ack !== "refused") return ack.seq;
    if (!repeated) return undefined;
    // An earlier attempt may have been stored without its answer: then the last message is ours.
    const stored = await last(key);
    return stored?.header.get(MESSAGE_ID_HEADER) === messageId ? stored.seq : undefined;
  }

  return {
    stream,
    subjectPrefix,
    manager,
    async write(key, value, expected) {
      const bytes = Buffer.byteLength(value);
      if (bytes > BUS_MESSAGE_BYTES_MAX)
        throw new BusError("too_large", `Record ${key} has ${bytes} bytes; at most ${BUS_MESSAGE_BYTES_MAX} fit.`);
      const revision = await publish(key, value, expected);
      if (revision !== undefined || expected !== 0) return revision;
      // A deleted key's last message is its marker.
      const present = await last(key);
      return present !== undefined && isMarker({ headers: present.header }) ? publish(key, value, present.seq) : undefined;
    },
    async get(key) {
      const message = await last(key);
      if (message === undefined || isMarker({ headers: message.header })) return undefined;
      return { key, value: message.string(), revision: message.seq };
    },
    async delete(key, expected) {
      const message = await last(key);
      if (message === undefined || isMarker({ headers: message.header })) return;
      if (expected !== undefined && message.seq !== expected) return;
      // A write that comes in between makes the server refuse the marker: then the record is another one.
      await publish(key, "", expected, "DEL");
    },
  };
}

/** L5: nothing may age out, and no replica may answer with what it has not heard yet. */
function checkConfig(bucket: string, config: StreamConfig, replicas: number): void {
  const faults: string[] = [];
  const expect = (name: keyof StreamConfig, wanted: unknown, fits: boolean): void => {
    if (!fits) faults.push(`${name} is ${String(config[name])}, needs ${String(wanted)}`);
  };
  expect("allow_direct", false, config.allow_direct !== true);
  expect("max_msgs_per_subject", 1, config.max_msgs_per_subject === 1);
  expect("discard", "new", config.discard === "new");
  expect("max_age", 0, !config.max_age);
  expect("max_msgs", -1, (config.max_msgs ?? -1) <= 0);
  expect("max_bytes", -1, (config.max_bytes ?? -1) <= 0);
  expect("max_msg_size", -1, (config.max_msg_size ?? -1) <= 0);
  expect("storage", "file", config.storage === "file");
  expect("num_replicas", replicas, config.num_replicas === replicas);
  if (faults.length > 0) {
    throw new BusError(
      "misconfigured",
      `KV bucket ${bucket} exists with other settings: ${faults.join("; ")}. Change them with nats stream edit, or remove the bucket.`,
    );
  }
}

/** Repeats `task` unchanged until it ends, for at most {@link PATIENCE_MS}; then the outcome is unknown. */
async function repeat<T>(what: string, task: () => Promise<T>): Promise<T> {
  const deadline = performance.now() + PATIENCE_MS;
  for (let waitMs = BACK_OFF_MS; ; waitMs = Math.min(2 * waitMs, BACK_OFF_MAX_MS)) {
    try {
      return await task();
    } catch (error) {
      if (error instanceof BusError) throw error;
      if (performance.now() + waitMs >= deadline) {
        const reason = error instanceof Error ? error.message : String(error);
        throw new BusError(
          "unreachable",
          `NATS did not ${what} within ${PATIENCE_MS} ms (${reason}); a write may have been stored. Repeat it.`,
          { cause: error },
        );
      }
      await new Promise((resolve) => setTimeout(resolve, waitMs * (0.5 + Math.random())));
    }
  }
}
