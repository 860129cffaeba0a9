/** A registry on a KV bucket. Its watches share one connection and are told of reconnects by the bus. */
import type { NatsConnection } from "@nats-io/nats-core";
import { BusError, type Registry, type RegistryRecord, type Subscription } from "../../domain/ports/bus.js";
import type { Log } from "../../domain/ports/log.js";
import { checkKey } from "../subjects.js";
import type { KvBucket } from "./kv-bucket.js";
import { type KvWatch, watchKv } from "./kv-watch.js";

export interface KvRegistry {
  readonly registry: Registry;
  reconnected(): void;
  close(): void;
}

export interface KvRegistryOptions {
  readonly connection: NatsConnection;
  readonly bucket: KvBucket;
  readonly log: Log;
  readonly isClosed: () => boolean;
}

/** How often markers of deleted keys are looked through. */
const SWEEP_MS = 600_000;
/** How long a list may take to load. */
const LIST_MS = 10_000;

export function createKvRegistry({ connection, bucket, log, isClosed }: KvRegistryOptions): KvRegistry {
  const watches = new Set<KvWatch>();

  const check = (key?: string): void => {
    if (key !== undefined) checkKey(key);
    if (isClosed()) throw new BusError("closed", "The bus is closed.");
  };

  function follow(tell: Parameters<typeof watchKv>[0]["tell"]): KvWatch {
    const watch = watchKv({ connection, bucket, log, tell });
    watches.add(watch);
    return watch;
  }

  function end(watch: KvWatch): void {
    watch.stop();
    watches.delete(watch);
  }

  async function sweep(): Promise<void> {
    const revisions = new Set([...watches].flatMap((watch) => watch.takeSweepable()));
    for (const revision of revisions) {
      if (isClosed()) return;
      // By number, so that what was written to the key since stays. Another broker may have been first.
      await bucket.manager.streams.deleteMessage(bucket.stream, revision, false).catch(() => false);
    }
  }
  const sweeper = setInterval(() => void sweep(), SWEEP_MS * (0.75 + Math.random() / 2));
  sweeper.unref();

  /** Waits for the first load, for at most `timeoutMs`. */
  async function loaded(watch: KvWatch, timeoutMs: number): Promise<void> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(
        () => reject(new BusError("unreachable", `The records of ${bucket.stream} were not loaded within ${timeoutMs} ms.`)),
        timeoutMs,
      );
    });
    try {
      await Promise.race([watch.ready, late]);
    } catch (error) {
      end(watch);
      throw error instanceof BusError ? error : new BusError("closed", "The bus was closed while it loaded records.", { cause: error });
    } finally {
      clearTimeout(timer);
    }
  }

  return {
    registry: {
      async put(key, value) {
        check(key);
        const revision = await bucket.write(key, value, undefined);
        if (revision === undefined) throw new BusError("unreachable", `The server refused an unconditional write to ${key}.`);
        return revision;
      },
      async update(key, value, expected) {
        check(key);
        return bucket.write(key, value, expected);
      },
      async get(key) {
        check(key);
        return bucket.get(key);
      },
      async delete(key, expected) {
        check(key);
        await bucket.delete(key, expected);
      },
      async list() {
        check();
        const records = new Map<string, RegistryRecord>();
        const watch = follow((change) => {
          if (change.kind === "put") records.set(change.record.key, change.record);
          else records.delete(change.key);
        });
        await loaded(watch, LIST_MS);
        end(watch);
        return [...records.values()];
      },
      async watch(listener): Promise<Subscription> {
        check();
        let active = true;
        const watch = follow((change) => {
          if (!active) return;
          try {
            listener(change);
          } catch (error) {
            log.error("bus_listener_failed", { stream: bucket.stream, error: error instanceof Error ? error.message : "unknown" });
          }
        });
        await loaded(watch, LIST_MS);
        return {
          unsubscribe() {
            active = false;
            end(watch);
          },
        };
      },
    },
    reconnected() {
      for (const watch of watches) watch.reconnected();
    },
    close() {
      clearInterval(sweeper);
      for (const watch of [...watches]) end(watch);
    },
  };
}
