/**
 * Follows a KV bucket: all present records, then every change, across lost connections, restarts and fail-overs.
 *
 * The ordered consumer of the client library notices a consumer that vanished with its server only after its heartbeats went
 * missing for up to a minute, and gives up after 30 tries; a revoked key may not live that long.
 *
 * Invariants:
 * 1. Changes are told in revision order, each once. After a gap the watch goes on behind the newest revision it told,
 *    which with one message a key is the newest state of each key that changed.
 * 2. A gap is any of: a reconnect, a delivery number that was skipped, a heartbeat that counts more than arrived, silence
 *    for {@link SILENCE_MS}.
 * 3. Markers of deleted keys are swept after {@link MARKER_MS}; a watch that was cut off for {@link RESYNC_MS} or longer therefore
 *    compares all records with those it told, and tells the deletion of what is gone.
 */
import { AckPolicy, DeliverPolicy, ReplayPolicy } from "@nats-io/jetstream";
import { createInbox, type Msg, type NatsConnection, type Subscription as NatsSubscription, nanos } from "@nats-io/nats-core";
import type { RegistryChange } from "../../domain/ports/bus.js";
import type { Log } from "../../domain/ports/log.js";
import { isMarker, type KvBucket } from "./kv-bucket.js";

export interface KvWatchOptions {
  readonly connection: NatsConnection;
  readonly bucket: KvBucket;
  readonly log: Log;
  /** Must not throw. */
  readonly tell: (change: RegistryChange) => void;
}

export interface KvWatch {
  /** Resolves when all records that were present at the start have been told. Rejects when the watch is stopped before. */
  readonly ready: Promise<void>;
  /** The connection came back: what was missed is fetched at once. */
  reconnected(): void;
  /** Revisions of deletion markers that nobody needs any more, oldest first; each is returned once. */
  takeSweepable(): number[];
  stop(): void;
}

const HEARTBEAT_MS = 1_000;
const SILENCE_MS = 3_500;
const MARKER_MS = 3_600_000;
const RESYNC_MS = 1_800_000;
const BACK_OFF_MS = 100;
const BACK_OFF_MAX_MS = 2_000;

/** One consumer on the server; replaced at every gap. */
interface Attempt {
  subscription: NatsSubscription | undefined;
  consumer: string | undefined;
  /** The number of the last delivery. */
  delivered: number;
  /** While all records are compared: those that were seen so far. */
  seen: Set<string> | undefined;
  live: boolean;
}

export function watchKv({ connection, bucket, log, tell }: KvWatchOptions): KvWatch {
  let stopped = false;
  /** The newest revision that was told or passed over. */
  let position = 0;
  let streamCreated: string | undefined;
  let failures = 0;
  let heardAt = performance.now();
  let attempt: Attempt | undefined;
  let retry: ReturnType<typeof setTimeout> | undefined;
  const known = new Map<string, number>();
  const markers = new Map<string, { readonly revision: number; readonly since: number }>();
  let settleReady: { resolve(): void; reject(error: Error): void } | undefined;
  const ready = new Promise<void>((resolve, reject) => {
    settleReady = { resolve, reject };
  });
  // A watch may be stopped before anyone awaits it.
  ready.catch(() => undefined);

  const watchdog = setInterval(() => {
    if (attempt?.consumer !== undefined && performance.now() - heardAt > SILENCE_MS) restart("silence");
  }, HEARTBEAT_MS);

  function discard(old: Attempt | undefined): void {
    if (old === undefined) return;
    old.live = false;
    if (attempt === old) attempt = undefined;
    old.subscription?.unsubscribe();
    if (old.consumer !== undefined && !connection.isClosed()) {
      // Left alone it would go by itself, 30 s after nobody listens any more.
      bucket.manager.consumers.delete(bucket.stream, old.consumer).catch(() => undefined);
    }
  }

  function restart(why: string): void {
    if (stopped) return;
    log.debug("kv_watch_restarted", { stream: bucket.stream, why, position });
    clearTimeout(retry);
    discard(attempt);
    begin();
  }

  function failed(mine: Attempt, error: unknown): void {
    if (!mine.live || stopped) return;
    discard(mine);
    failures += 1;
    const waitMs = Math.min(BACK_OFF_MS * 2 ** Math.min(failures, 10), BACK_OFF_MAX_MS) * (0.5 + Math.random() / 2);
    log.debug("kv_watch_failed", { stream: bucket.stream, error: error instanceof Error ? error.message : String(error), failures });
    clearTimeout(retry);
    retry = setTimeout(() => restart("retry"), waitMs);
  }

  function begin(): void {
    const mine: Attempt = { subscription: undefined, consumer: undefined, delivered: 0, seen: undefined, live: true };
    attempt = mine;
    consume(mine).catch((error: unknown) => failed(mine, error));
  }

  async function consume(mine: Attempt): Promise<void> {
    const { created } = await bucket.manager.streams.info(bucket.stream);
    if (!mine.live) return;
    if (streamCreated !== undefined && streamCreated !== created) {
      log.error("kv_bucket_recreated", { stream: bucket.stream });
      position = 0;
    }
    streamCreated = created;
    if (position === 0 || performance.now() - heardAt > RESYNC_MS) mine.seen = new Set();

    const inbox = createInbox();
    mine.subscription = connection.subscribe(inbox, {
      callback: (error, message) => {
        if (!mine.live) return;
        if (error === null) receive(mine, message);
        else failed(mine, error);
      },
    });
    const info = await bucket.manager.consumers.add(bucket.stream, {
      deliver_subject: inbox,
      filter_subject: `${bucket.subjectPrefix}>`,
      ack_policy: AckPolicy.None,
      replay_policy: ReplayPolicy.Instant,
      idle_heartbeat: nanos(HEARTBEAT_MS),
      flow_control: true,
      inactive_threshold: nanos(30_000),
      mem_storage: true,
      num_replicas: 1,
      ...(mine.seen === undefined
        ? { deliver_policy: DeliverPolicy.StartSequence, opt_start_seq: position + 1 }
        : { deliver_policy: DeliverPolicy.LastPerSubject }),
    });
    mine.consumer = info.name;
    if (!mine.live) {
      discard(mine);
      return;
    }
    failures = 0;
    heardAt = performance.now();
    if (info.num_pending === 0 && mine.delivered === 0) caughtUp(mine);
  }

  function receive(mine: Attempt, message: Msg): void {
    heardAt = performance.now();
    if (message.subject.startsWith(bucket.subjectPrefix)) deliver(mine, message);
    else control(mine, message);
  }

  /** Heartbeats and flow control come without a subject of the bucket. */
  function control(mine: Attempt, message: Msg): void {
    if (message.headers?.code !== 100) return;
    if (message.reply) {
      message.respond();
      return;
    }
    const stalled = message.headers.get("Nats-Consumer-Stalled");
    if (stalled !== "") connection.publish(stalled);
    if (Number(message.headers.get("Nats-Last-Consumer")) > mine.delivered) restart("heartbeat_ahead");
    else caughtUp(mine);
  }

  function deliver(mine: Attempt, message: Msg): void {
    const place = parsePlace(message.reply ?? "");
    if (place === undefined || place.delivery !== mine.delivered + 1) {
      restart("gap");
      return;
    }
    mine.delivered = place.delivery;
    const key = message.subject.slice(bucket.subjectPrefix.length);
    mine.seen?.add(key);
    change(key, message, place.revision);
    position = Math.max(position, place.revision);
    if (place.pending === 0) caughtUp(mine);
  }

  function change(key: string, message: Msg, revision: number): void {
    if (known.get(key) === revision || markers.get(key)?.revision === revision) return;
    if (isMarker(message)) {
      markers.set(key, { revision, since: performance.now() });
      if (known.delete(key)) tell({ kind: "delete", key, revision });
      return;
    }
    markers.delete(key);
    known.set(key, revision);
    tell({ kind: "put", record: { key, value: message.string(), revision } });
  }

  function caughtUp(mine: Attempt): void {
    settleReady?.resolve();
    settleReady = undefined;
    const { seen } = mine;
    if (seen === undefined) return;
    mine.seen = undefined;
    for (const key of [...known.keys()]) {
      if (seen.has(key)) continue;
      known.delete(key);
      tell({ kind: "delete", key, revision: position });
    }
  }

  begin();
  return {
    ready,
    reconnected: () => restart("reconnect"),
    takeSweepable() {
      const now = performance.now();
      const old = [...markers].filter(([, marker]) => now - marker.since >= MARKER_MS);
      for (const [key] of old) markers.delete(key);
      return old.map(([, marker]) => marker.revision);
    },
    stop() {
      if (stopped) return;
      stopped = true;
      clearInterval(watchdog);
      clearTimeout(retry);
      discard(attempt);
      settleReady?.reject(new Error("The watch was stopped."));
    },
  };
}

/** Revision, delivery number and how many more wait, from the reply subject of a delivered message. */
function parsePlace(reply: string): { readonly revision: number; readonly delivery: number; readonly pending: number } | undefined {
  const tokens = reply.split(".");
  if (tokens[0] !== "$JS" || tokens[1] !== "ACK") return undefined;
  // $JS.ACK.<stream>.<consumer>.<deliveries>.<revision>.<delivery>.<time>.<pending>, or with domain and account in front and a token behind.
  const offset = tokens.length === 9 ? 5 : 7;
  const [revision, delivery, , pending] = tokens.slice(offset, offset + 4).map(Number);
  if (revision === undefined || delivery === undefined || pending === undefined || Number.isNaN(pending)) return undefined;
  return { revision, delivery, pending };
}
