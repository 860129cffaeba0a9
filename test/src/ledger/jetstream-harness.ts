/** A JetStream store for the ledger suite: each ledger has a connection and an incarnation of its own, as each broker does. */
import { randomUUID } from "node:crypto";
import { connect, type NatsConnection } from "@nats-io/transport-node";
import { type JetStreamLedgerOptions, type Ledger, type Log, type LogFields, openJetStreamLedger } from "@toolrunner/broker/internal";

/** Time as the machine tells it. */
export const systemClock: JetStreamLedgerOptions["clock"] = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  schedule: (delayMs, task) => {
    const timer = setTimeout(task, delayMs);
    return { cancel: () => clearTimeout(timer) };
  },
};

export interface RecordedLog extends Log {
  /** Event names and fields, oldest first. */
  readonly lines: { readonly event: string; readonly fields: LogFields | undefined }[];
}

/** A log that keeps its lines, so that a test can look for an event. */
export function recordedLog(): RecordedLog {
  const lines: RecordedLog["lines"] = [];
  const keep = (event: string, fields?: LogFields): void => void lines.push({ event, fields });
  return { lines, debug: keep, info: keep, warn: keep, error: keep };
}

/** A connection as a broker makes it: it comes back by itself for ever. */
export function connectTo(urls: readonly string[]): Promise<NatsConnection> {
  return connect({
    servers: urls.map((url) => url.replace("nats://", "")),
    noAsyncTraces: true,
    maxReconnectAttempts: -1,
    reconnectTimeWait: 100,
    reconnectJitter: 100,
    pingInterval: 2_000,
  });
}

export interface OpenedLedger {
  readonly ledger: Ledger;
  readonly connection: NatsConnection;
  readonly log: RecordedLog;
  readonly incarnation: string;
}

export interface OpenOptions {
  readonly prefix?: string;
  readonly replicas?: 1 | 3;
  readonly incarnation?: string;
  readonly openTimeoutMs?: number;
  readonly clock?: JetStreamLedgerOptions["clock"];
}

/** Opens a ledger on a connection of its own; closing the ledger closes that too. */
export async function openOn(urls: readonly string[], options: OpenOptions = {}): Promise<OpenedLedger> {
  const connection = await connectTo(urls);
  const log = recordedLog();
  const incarnation = options.incarnation ?? `inc_${randomUUID()}`;
  try {
    const ledger = await openJetStreamLedger({
      connection,
      clock: systemClock,
      log,
      replicas: 1,
      ...options,
      incarnation,
    });
    return { ledger: closingBoth(ledger, connection), connection, log, incarnation };
  } catch (error) {
    await connection.close();
    throw error;
  }
}

function closingBoth(ledger: Ledger, connection: NatsConnection): Ledger {
  const close = ledger.close.bind(ledger);
  ledger.close = async () => {
    await close();
    await connection.close();
  };
  return ledger;
}

/** Publishes, from outside the ledger, another content for the first part of a blob. */
export async function corruptBlobOn(urls: readonly string[], name: string, prefix = "tr"): Promise<void> {
  const connection = await connectTo(urls);
  try {
    const answer = await connection.request(`${prefix}.blob.${name.replace("/", ".")}.0`, "something else", { timeout: 5_000 });
    const { seq } = answer.json<{ seq?: number }>();
    if (seq === undefined) throw new Error(`blob ${name} could not be changed: ${answer.string()}`);
  } finally {
    await connection.close();
  }
}
