/**
 * The bus on NATS: core messages for what may be lost, KV buckets for shared records.
 *
 * Invariants:
 * 1. Every subject and bucket begins with the prefix, so that installations can share a server.
 * 2. While the connection is down nothing is queued: a publish is dropped, a request refused. What waits on the bus is asked
 *    for again (B3), and a queue would deliver old offers in a burst.
 * 3. The connection belongs to whoever made it; closing the bus ends what the bus started on it.
 */
import { errors, type Msg, type NatsConnection, RequestError } from "@nats-io/nats-core";
import { BUS_MESSAGE_BYTES_MAX, type Bus, BusError, type Subscription } from "../../domain/ports/bus.js";
import type { Log } from "../../domain/ports/log.js";
import { checkRegistryName, checkSubject, checkSubscription } from "../subjects.js";
import { openKvBucket } from "./kv-bucket.js";
import { createKvRegistry, type KvRegistry } from "./kv-registry.js";

export interface NatsBusOptions {
  /** From `connectNats`; stays open when the bus closes. */
  readonly connection: NatsConnection;
  /** Default `tr`; `[A-Za-z0-9_-]+`. */
  readonly prefix?: string | undefined;
  /** Copies of each registry, 1, 3 or 5. Default 1. More than one needs nats-server 2.10.27 (L1). */
  readonly replicas?: number | undefined;
  readonly log: Log;
}

const CHECK_MS = 2_000;
/** A message, its subject and its headers. */
const MAX_PAYLOAD_BYTES = BUS_MESSAGE_BYTES_MAX + 16_384;
const REPLICATED_SINCE = [2, 10, 27] as const;

/** Throws {@link BusError} `misconfigured` or `unsupported_server` when the server cannot carry the bus. */
export function createNatsBus(options: NatsBusOptions): Bus {
  const { connection, log } = options;
  const prefix = options.prefix ?? "tr";
  const replicas = options.replicas ?? 1;
  checkServer(connection, prefix, replicas);

  let closed = false;
  let state: "up" | "down" = connection.isClosed() ? "down" : "up";
  const registries = new Map<string, Promise<KvRegistry>>();
  const opened = new Set<KvRegistry>();
  const subscriptions = new Set<() => void>();
  const stateListeners = new Set<(state: "up" | "down") => void>();
  const status = connection.status();

  function setState(next: "up" | "down"): void {
    if (state === next) return;
    state = next;
    for (const listener of [...stateListeners]) listener(next);
  }

  async function followStatus(): Promise<void> {
    for await (const event of status) {
      if (event.type === "disconnect" || event.type === "close") setState("down");
      if (event.type === "reconnect") {
        setState("up");
        for (const registry of opened) registry.reconnected();
      }
      if (event.type === "error") log.warn("nats_error", { error: event.error.message });
      if (event.type === "slowConsumer") log.warn("nats_slow_consumer", { pending: event.pending });
    }
    setState("down");
  }
  void followStatus();

  function name(subject: string): string {
    return `${prefix}.${subject}`;
  }

  function checkMessage(subject: string, payload: string): void {
    checkSubject(subject);
    const bytes = Buffer.byteLength(payload);
    if (bytes > BUS_MESSAGE_BYTES_MAX) {
      throw new BusError("too_large", `A message to ${subject} has ${bytes} bytes; at most ${BUS_MESSAGE_BYTES_MAX} fit.`);
    }
  }

  function checkUp(): void {
    if (closed) throw new BusError("closed", "The bus is closed.");
    if (state === "down") throw new BusError("unreachable", "The connection to NATS is down; it is being made again.");
  }

  function listen(subject: string, receive: (message: Msg, subject: string) => void): Subscription {
    checkSubscription(subject);
    if (closed) throw new BusError("closed", "The bus is closed.");
    const subscription = connection.subscribe(name(subject), {
      callback: (error, message) => {
        if (error === null) receive(message, message.subject.slice(prefix.length + 1));
        else log.error("bus_subscription_failed", { subject, error: error.message });
      },
    });
    const end = (): void => {
      subscription.unsubscribe();
      subscriptions.delete(end);
    };
    subscriptions.add(end);
    return { unsubscribe: end };
  }

  function logFailure(event: string, subject: string, error: unknown): void {
    log.error(event, { subject, error: error instanceof Error ? error.message : "unknown" });
  }

  return {
    description: { kind: "nats" },
    publish(subject, payload) {
      checkMessage(subject, payload);
      if (closed || state === "down") return;
      connection.publish(name(subject), payload);
    },
    subscribe(subject, listener) {
      return listen(subject, (message, from) => {
        try {
          listener(message.string(), from);
        } catch (error) {
          logFailure("bus_listener_failed", from, error);
        }
      });
    },
    async request(subject, payload, { timeoutMs }) {
      checkMessage(subject, payload);
      checkUp();
      try {
        return (await connection.request(name(subject), payload, { timeout: Math.max(1, timeoutMs) })).string();
      } catch (error) {
        throw toRequestError(error, subject, timeoutMs, closed);
      }
    },
    async requestMany(subject, payload, { timeoutMs, max }) {
      checkMessage(subject, payload);
      checkUp();
      const answers: string[] = [];
      if (max < 1) return answers;
      try {
        const messages = await connection.requestMany(name(subject), payload, {
          strategy: "count",
          maxMessages: max,
          maxWait: Math.max(1, timeoutMs),
        });
        for await (const message of messages) answers.push(message.string());
      } catch (error) {
        const failure = toRequestError(error, subject, timeoutMs, closed);
        if (failure.code === "closed" || (failure.code === "unreachable" && answers.length === 0)) throw failure;
      }
      return answers;
    },
    respond(subject, responder) {
      return listen(subject, (message, from) => {
        if (!message.reply) return;
        void Promise.resolve()
          .then(() => responder(message.string(), from))
          .then((answer) => {
            if (answer === undefined) return;
            checkMessage(from, answer);
            if (!connection.isClosed()) message.respond(answer);
          })
          .catch((error: unknown) => logFailure("bus_responder_failed", from, error));
      });
    },
    async registry(registryName) {
      checkRegistryName(registryName);
      if (closed) throw new BusError("closed", "The bus is closed.");
      const known = registries.get(registryName);
      if (known !== undefined) return (await known).registry;
      const opening = openKvBucket({ connection, bucket: `${prefix}_${registryName}`, replicas }).then((bucket) => {
        const registry = createKvRegistry({ connection, bucket, log, isClosed: () => closed });
        if (closed) registry.close();
        else opened.add(registry);
        return registry;
      });
      registries.set(registryName, opening);
      try {
        return (await opening).registry;
      } catch (error) {
        // The next one who asks tries again.
        registries.delete(registryName);
        throw error;
      }
    },
    async check() {
      if (closed) throw new BusError("unreachable", "The bus is closed.");
      checkUp();
      await within(CHECK_MS, connection.flush());
    },
    onState(listener) {
      stateListeners.add(listener);
      listener(closed ? "down" : state);
      return { unsubscribe: () => stateListeners.delete(listener) };
    },
    async close() {
      if (closed) return;
      closed = true;
      for (const end of [...subscriptions]) end();
      for (const registry of opened) registry.close();
      setState("down");
      stateListeners.clear();
      // The library's iterator of status events.
      if ("stop" in status && typeof status.stop === "function") status.stop();
    },
  };
}

function checkServer(connection: NatsConnection, prefix: string, replicas: number): void {
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(prefix))
    throw new BusError("misconfigured", `The bus's prefix ${JSON.stringify(prefix.slice(0, 80))} is not [A-Za-z0-9_-]+.`);
  if (![1, 3, 5].includes(replicas)) throw new BusError("misconfigured", `Replicas must be 1, 3 or 5, not ${replicas}.`);
  const info = connection.info;
  if (info === undefined) throw new BusError("unreachable", "The connection to NATS is not open.");
  if (info.max_payload < MAX_PAYLOAD_BYTES) {
    throw new BusError(
      "misconfigured",
      `The NATS server takes messages of ${info.max_payload} bytes; brokers need ${MAX_PAYLOAD_BYTES}. Set max_payload: 1MB.`,
    );
  }
  if (replicas > 1 && !isAtLeast(info.version, REPLICATED_SINCE)) {
    throw new BusError(
      "unsupported_server",
      `nats-server ${info.version} loses compare-and-set writes on replicated streams. Use ${REPLICATED_SINCE.join(".")} or newer, or replicas 1.`,
    );
  }
}

function isAtLeast(version: string, wanted: readonly [number, number, number]): boolean {
  const parts = /^(\d+)\.(\d+)\.(\d+)/.exec(version)?.slice(1).map(Number) ?? [];
  for (const [index, least] of wanted.entries()) {
    const part = parts[index] ?? 0;
    if (part !== least) return part > least;
  }
  return true;
}

function toRequestError(error: unknown, subject: string, timeoutMs: number, closed: boolean): BusError {
  if (error instanceof BusError) return error;
  if (closed || error instanceof errors.ClosedConnectionError)
    return new BusError("closed", "The bus was closed while a request waited.", { cause: error });
  const noResponders = error instanceof errors.NoRespondersError || (error instanceof RequestError && error.isNoResponders());
  if (noResponders) return new BusError("no_responder", `Nobody listens to ${subject}.`, { cause: error });
  if (error instanceof errors.TimeoutError)
    return new BusError("timeout", `Nobody answered ${subject} within ${timeoutMs} ms.`, { cause: error });
  const reason = error instanceof Error ? error.message : String(error);
  return new BusError("unreachable", `A request to ${subject} failed: ${reason}`, { cause: error });
}

async function within(limitMs: number, task: Promise<void>): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new BusError("unreachable", `NATS did not answer within ${limitMs} ms.`)), limitMs);
  });
  try {
    await Promise.race([task, late]);
  } catch (error) {
    throw error instanceof BusError ? error : new BusError("unreachable", `NATS does not answer: ${String(error)}`, { cause: error });
  } finally {
    clearTimeout(timer);
  }
}
