/**
 * Reads the stream of calls by itself, with nothing of the broker's reader: every message that the stream's leader says it has, in
 * order, none left out. Only the entries' own codec is the broker's.
 */
import { connect, type Msg, type NatsConnection } from "@nats-io/transport-node";
import { decodeEntry } from "@toolrunner/broker/internal";
import type { LedgerEntry } from "./history.js";

export interface LedgerReader {
  /** Everything that is stored now, what was read before included. Rejects when the stream cannot be read whole within 30 s. */
  read(): Promise<readonly LedgerEntry[]>;
  close(): Promise<void>;
}

const STREAM = "tr_calls";
const SUBJECT = "tr.call.";
const BATCH = 500;
const TRY_MS = 3_000;
const READ_MS = 30_000;
const HEADER = /^[os-] (\d+) (\S+) \S+$/;

/** `urls` of the NATS servers. */
export async function openLedgerReader(urls: readonly string[]): Promise<LedgerReader> {
  const connection = await connect({ servers: urls.map((url) => url.replace("nats://", "")), maxReconnectAttempts: -1 });
  const entries: LedgerEntry[] = [];
  let next = 1;
  return {
    async read() {
      const end = performance.now() + READ_MS;
      for (;;) {
        try {
          const last = await lastSequence(connection);
          for await (const { sequence, message } of messagesFrom(connection, next, last)) {
            if (sequence !== next) throw new Error(`the stream gave ${sequence} where ${next} should be`);
            entries.push(entryOf(message, sequence));
            next += 1;
          }
          return entries;
        } catch (cause) {
          // A server that was away a moment ago may not know the stream yet.
          if (performance.now() > end) throw new Error(`the ledger cannot be read: ${String(cause)}`, { cause });
          await new Promise((resolve) => setTimeout(resolve, 300));
        }
      }
    },
    close: () => connection.close(),
  };
}

async function ask(connection: NatsConnection, subject: string, request: object): Promise<Record<string, unknown>> {
  const answer = await connection.request(subject, JSON.stringify(request), { timeout: TRY_MS });
  const body = answer.json<Record<string, unknown>>();
  if (body.error !== undefined) throw new Error(JSON.stringify(body.error));
  return body;
}

async function lastSequence(connection: NatsConnection): Promise<number> {
  const { state } = (await ask(connection, `$JS.API.STREAM.INFO.${STREAM}`, {})) as { state: { last_seq: number } };
  return state.last_seq;
}

async function* messagesFrom(
  connection: NatsConnection,
  from: number,
  to: number,
): AsyncGenerator<{ readonly sequence: number; readonly message: Msg }> {
  if (from > to) return;
  const { name } = (await ask(connection, `$JS.API.CONSUMER.CREATE.${STREAM}`, {
    stream_name: STREAM,
    config: {
      deliver_policy: "by_start_sequence",
      opt_start_seq: from,
      ack_policy: "none",
      replay_policy: "instant",
      inactive_threshold: 30_000_000_000,
      mem_storage: true,
      num_replicas: 1,
    },
  })) as { name: string };
  let reached = from - 1;
  while (reached < to) {
    const inbox = `_INBOX.chaos.${name}.${reached}`;
    const batch = connection.subscribe(inbox, { timeout: TRY_MS });
    connection.publish(
      `$JS.API.CONSUMER.MSG.NEXT.${STREAM}.${name}`,
      JSON.stringify({ batch: Math.min(BATCH, to - reached), expires: 2_000_000_000 }),
      { reply: inbox },
    );
    const wanted = Math.min(BATCH, to - reached);
    let got = 0;
    for await (const message of batch) {
      // A status instead of a message: time is up, or the consumer is gone.
      if (!message.subject.startsWith(SUBJECT)) break;
      reached = Number(message.reply?.split(".").at(-4));
      got += 1;
      yield { sequence: reached, message };
      if (got === wanted) break;
    }
    batch.unsubscribe();
    if (got === 0) throw new Error(`nothing after ${reached}, while there is ${to}`);
  }
}

function entryOf(message: Msg, version: number): LedgerEntry {
  const call = message.subject.slice(SUBJECT.length);
  const [, previous, entryId = ""] = HEADER.exec(message.headers?.get("Tr-Entry") ?? "") ?? [];
  if (previous === undefined) throw new Error(`message ${version} has no header of an entry`);
  const {
    version: _version,
    entryId: _id,
    ...entry
  } = decodeEntry({
    callId: call,
    version,
    previous: Number(previous),
    entryId,
    data: Buffer.from(message.data).toString("utf8"),
  });
  return { call, version, previous: Number(previous), entryId, entry };
}
