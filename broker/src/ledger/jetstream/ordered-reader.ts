/**
 * Reads a stream in order, from a sequence on, without losing or doubling a message whatever happens on the way.
 *
 * It pulls from an ephemeral consumer without acknowledgements. Consumers of this kind are lost with their server, and pulls are
 * lost with a connection, without a word: so a reader never waits for a consumer. It trusts what arrives in unbroken order, and
 * makes a new consumer after the last message it handed out when anything else happens.
 *
 * Invariants:
 * - Sequences handed out rise strictly.
 * - The consumer's own count has no gap between two messages; otherwise the rest is dropped and read again.
 * - Silence of two heartbeats ends a consumer.
 * - At most {@link PULL_MESSAGES} messages wait here: a slow reader slows its server down, not this process.
 */
import { createInbox, type Msg, type MsgHdrs, type NatsConnection } from "@nats-io/nats-core";
import type { Clock } from "../../domain/ports/clock.js";
import { closedError } from "../append-rules.js";
import type { ConnectionWatch } from "./connection-watch.js";
import type { Requests } from "./requests.js";
import { getMessage, lastSequence } from "./stored-message.js";

/** A message as it was stored. */
export interface StreamMessage {
  readonly subject: string;
  readonly sequence: number;
  readonly headers: MsgHdrs | undefined;
  readonly data: Uint8Array;
}

export interface ReadOptions {
  readonly stream: string;
  /** Subjects to read; may have wildcards. */
  readonly filter: string;
  /** First sequence. */
  readonly from: number;
  /** Leaves `data` empty. Default `false`. */
  readonly headersOnly?: boolean;
  /** Ends a read quietly. */
  readonly signal: AbortSignal;
}

export interface ReaderContext {
  readonly connection: NatsConnection;
  readonly watch: ConnectionWatch;
  readonly requests: Requests;
  readonly clock: Clock;
  /** In [0, 1). */
  readonly random: () => number;
}

const PULL_MESSAGES = 500;
const PULL_BYTES = 4_194_304;
const PULL_EXPIRES_MS = 30_000;
const HEARTBEAT_MS = 1_000;
const SILENCE_MS = 2_500;
const INACTIVE_MS = 30_000;
const AGAIN_MS = 50;
const AGAIN_MAX_MS = 1_000;
const NANOS = 1_000_000;

/** Messages from `from` on, and then new ones as they are stored, until the signal aborts. */
export async function* follow(context: ReaderContext, options: ReadOptions): AsyncGenerator<StreamMessage> {
  for await (const item of followWithPauses(context, options)) if (item !== PAUSE) yield item;
}

/**
 * Messages from `from` to the end that the stream's leader knew when this was called, or later.
 * The consumer may be on a server that lags behind, so "nothing is left" is believed from the leader only.
 */
export async function* readToEnd(context: ReaderContext, options: ReadOptions): AsyncGenerator<StreamMessage> {
  let next = Math.max(1, options.from);
  const end = await lastSequence(context.requests, options.stream);
  if (next > end) return;
  for await (const item of followWithPauses(context, options)) {
    if (item === PAUSE) {
      const first = await getMessage(context.requests, options.stream, { seq: next, next_by_subj: options.filter });
      if (first === undefined || first.sequence > end) return;
      continue;
    }
    next = item.sequence + 1;
    yield item;
    if (item.sequence >= end) return;
  }
}

/** Stands for "nothing more to deliver for now", as the consumer's server sees it. */
export const PAUSE = Symbol("pause");

/** {@link follow}, with {@link PAUSE} each time that the end is reached as far as the consumer's server knows, and while it stays there. */
export async function* followWithPauses(context: ReaderContext, options: ReadOptions): AsyncGenerator<StreamMessage | typeof PAUSE> {
  let next = Math.max(1, options.from);
  let failures = 0;
  while (!options.signal.aborted) {
    const consumer = await makeConsumer(context, options, next);
    if (consumer !== undefined) {
      try {
        for await (const item of consumer.items()) {
          failures = 0;
          if (item !== PAUSE) {
            // A consumer that was asked to start behind the end of the stream starts at the end.
            if (item.sequence < next) continue;
            next = item.sequence + 1;
          }
          yield item;
          if (options.signal.aborted) return;
        }
      } finally {
        consumer.end();
      }
    }
    if (options.signal.aborted) return;
    failures += 1;
    await wait(context, failures, options.signal);
  }
}

async function wait(context: ReaderContext, failures: number, signal: AbortSignal): Promise<void> {
  const delayMs = Math.min(AGAIN_MS * 2 ** Math.min(failures, 10), AGAIN_MAX_MS) * (0.5 + context.random() / 2);
  await new Promise<void>((resolve) => {
    const done = (): void => {
      timer.cancel();
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = context.clock.schedule(delayMs, done);
    signal.addEventListener("abort", done, { once: true });
  });
}

async function makeConsumer(context: ReaderContext, options: ReadOptions, from: number): Promise<PullConsumer | undefined> {
  const { stream, filter, headersOnly = false } = options;
  const name = `r_${createInbox().replaceAll(/[^A-Za-z0-9]/g, "")}`;
  const answer = await context.requests.ask(`$JS.API.CONSUMER.CREATE.${stream}.${name}.${filter}`, {
    stream_name: stream,
    config: {
      name,
      deliver_policy: "by_start_sequence",
      opt_start_seq: from,
      ack_policy: "none",
      replay_policy: "instant",
      filter_subject: filter,
      headers_only: headersOnly,
      mem_storage: true,
      num_replicas: 1,
      inactive_threshold: INACTIVE_MS * NANOS,
    },
  });
  if (answer.error !== undefined || options.signal.aborted) return undefined;
  return new PullConsumer(context, options, name, answer.num_pending === 0);
}

class PullConsumer {
  readonly #context: ReaderContext;
  readonly #options: ReadOptions;
  readonly #name: string;
  readonly #queue: (StreamMessage | typeof PAUSE)[];
  readonly #subscription: { unsubscribe(): void };
  readonly #inbox = createInbox();
  readonly #unwatch: () => void;
  readonly #aborted = (): void => this.end();
  #wake: (() => void) | undefined;
  #ended = false;
  #delivered = 0;
  /** Messages asked for and not yet arrived. */
  #outstanding = 0;
  #heardAt: number;
  #timer: { cancel(): void } | undefined;

  constructor(context: ReaderContext, options: ReadOptions, name: string, isEmpty: boolean) {
    this.#context = context;
    this.#options = options;
    this.#name = name;
    this.#queue = isEmpty ? [PAUSE] : [];
    this.#heardAt = context.clock.monotonic();
    this.#subscription = context.connection.subscribe(this.#inbox, {
      callback: (error, message) => {
        if (error === null) this.#arrived(message);
        else this.end();
      },
    });
    this.#unwatch = context.watch.onChange(() => this.end());
    void context.watch.closed.then(() => this.end());
    options.signal.addEventListener("abort", this.#aborted, { once: true });
    this.#watchSilence();
    this.#pull();
  }

  /** Ends when the consumer can no longer be trusted. */
  async *items(): AsyncGenerator<StreamMessage | typeof PAUSE> {
    for (;;) {
      const item = this.#queue.shift();
      if (item !== undefined) {
        yield item;
        if (this.#outstanding + this.#queue.length <= PULL_MESSAGES / 2) this.#pull();
        continue;
      }
      if (this.#ended) {
        if (this.#context.connection.isClosed()) throw closedError("read");
        return;
      }
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  #pull(): void {
    if (this.#ended) return;
    const batch = PULL_MESSAGES - this.#outstanding - this.#queue.length;
    if (batch <= 0) return;
    this.#outstanding += batch;
    const body = JSON.stringify({
      batch,
      max_bytes: PULL_BYTES,
      expires: PULL_EXPIRES_MS * NANOS,
      idle_heartbeat: HEARTBEAT_MS * NANOS,
    });
    this.#context.connection.publish(`$JS.API.CONSUMER.MSG.NEXT.${this.#options.stream}.${this.#name}`, body, { reply: this.#inbox });
  }

  #arrived(message: Msg): void {
    if (this.#ended) return;
    this.#heardAt = this.#context.clock.monotonic();
    const code = message.headers?.code ?? 0;
    if (code !== 0 && !(message.reply ?? "").startsWith("$JS.ACK.")) return this.#status(code, message);
    const position = positionOf(message.reply ?? "");
    if (position === undefined || position.delivered !== this.#delivered + 1) return this.end();
    this.#delivered = position.delivered;
    this.#outstanding = Math.max(0, this.#outstanding - 1);
    this.#queue.push({ subject: message.subject, sequence: position.sequence, headers: message.headers, data: message.data });
    if (position.pending === 0) this.#queue.push(PAUSE);
    this.#wakeUp();
  }

  /** 100 is a heartbeat. 404, 408 and some 409 end a pull, with what it still had open; everything else ends the consumer. */
  #status(code: number, message: Msg): void {
    if (code === 100) {
      if (this.#queue.length === 0) this.#queue.push(PAUSE);
      return this.#wakeUp();
    }
    const endsPull =
      code === 404 || code === 408 || (code === 409 && /batch completed|max_?bytes/i.test(message.headers?.description ?? ""));
    if (!endsPull) return this.end();
    this.#outstanding = Math.max(0, this.#outstanding - Number(message.headers?.get("Nats-Pending-Messages") || this.#outstanding));
    if (this.#queue.length <= PULL_MESSAGES / 2) this.#pull();
  }

  #watchSilence(): void {
    this.#timer = this.#context.clock.schedule(HEARTBEAT_MS / 2, () => {
      if (this.#ended) return;
      const silentMs = this.#context.clock.monotonic() - this.#heardAt;
      // With nothing asked for, silence is this reader's own.
      if (this.#outstanding > 0 && silentMs > SILENCE_MS) this.end();
      else this.#watchSilence();
    });
  }

  #wakeUp(): void {
    const wake = this.#wake;
    this.#wake = undefined;
    wake?.();
  }

  /** Idempotent. */
  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#timer?.cancel();
    this.#unwatch();
    this.#options.signal.removeEventListener("abort", this.#aborted);
    if (!this.#context.connection.isClosed()) {
      this.#subscription.unsubscribe();
      // Nobody waits for this: a consumer that is not deleted goes by itself after a while.
      this.#context.connection.publish(`$JS.API.CONSUMER.DELETE.${this.#options.stream}.${this.#name}`);
    }
    this.#wakeUp();
  }
}

interface Position {
  readonly sequence: number;
  readonly delivered: number;
  readonly pending: number;
}

/** From `$JS.ACK.<stream>.<consumer>.<deliveries>.<stream sequence>.<consumer sequence>.<time>.<pending>`, with domain and account in front since 2.11. */
function positionOf(reply: string): Position | undefined {
  const tokens = reply.split(".");
  const at = tokens.length === 9 ? 5 : tokens.length >= 11 ? 7 : undefined;
  if (at === undefined || tokens[0] !== "$JS" || tokens[1] !== "ACK") return undefined;
  const [sequence, delivered, , pending] = tokens.slice(at, at + 4).map(Number);
  if (sequence === undefined || delivered === undefined || pending === undefined) return undefined;
  return { sequence, delivered, pending };
}
