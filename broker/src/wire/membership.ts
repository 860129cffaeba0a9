/**
 * Which brokers live. Each writes a heartbeat record under its incarnation; the others time the record's revisions on
 * their own monotonic clock (B1): nothing depends on wall clocks or on a record running out by itself.
 *
 * Invariants: who stood still, or was cut off from the bus, judges nobody until it has listened again; a record is removed for
 * another broker only while it is the one that was seen last; a broker that others may have thought dead learns of it.
 */
import type { Bus, Registry, RegistryChange, Subscription } from "../domain/ports/bus.js";
import type { Clock } from "../domain/ports/clock.js";
import type { Log } from "../domain/ports/log.js";
import type { Figures } from "./figures.js";
import { settledWithin } from "./settled-within.js";
import type { TimerWheel } from "./timer-wheel.js";

/** Brokers that are remembered as gone. */
const GONE_MAX = 1_000;
/** How long the end of a broker waits for its record to be removed. */
const FAREWELL_MS = 600;

interface Seen {
  /** Monotonic. */
  readonly at: number;
  readonly revision: number;
}

export class Membership {
  /** The newest sign of life of each other broker. */
  private readonly seen = new Map<string, Seen>();
  private readonly departed = new Set<string>();
  private readonly goneListeners = new Set<(brokerId: string) => void>();
  private readonly seenListeners = new Set<() => void>();
  private readonly backListeners = new Set<(brokerId: string) => void>();
  private readonly doubtListeners = new Set<() => void>();
  private registry: Registry | undefined;
  private watching: Subscription | undefined;
  private states: Subscription | undefined;
  private connected = true;
  private stopped = false;

  constructor(
    readonly brokerId: string,
    private readonly context: {
      readonly bus: Bus;
      readonly clock: Clock;
      readonly log: Log;
      readonly figures: Figures;
      readonly timers: TimerWheel;
    },
  ) {}

  async start(): Promise<void> {
    this.registry = await this.context.bus.registry("brokers");
    await this.beat();
    const watching = await this.registry.watch((change) => this.changed(change));
    if (this.stopped) {
      watching.unsubscribe();
      return;
    }
    this.watching = watching;
    this.context.timers.onStall(() => this.doubted());
    this.states = this.context.bus.onState((state) => this.reached(state === "up"));
    this.tick();
  }

  /** Tells the others at once that this broker is gone, as far as the bus lets it. */
  async stop(): Promise<void> {
    this.stopped = true;
    this.watching?.unsubscribe();
    this.states?.unsubscribe();
    if (this.registry !== undefined) {
      const removed = this.registry.delete(this.brokerId);
      removed.catch((error: unknown) => this.context.log.warn("heartbeat_removal_failed", reason(error)));
      await settledWithin(this.context.timers, removed, FAREWELL_MS);
    }
  }

  onGone(listener: (brokerId: string) => void): void {
    this.goneListeners.add(listener);
  }

  /** Another broker came into sight. */
  onSeen(listener: () => void): void {
    this.seenListeners.add(listener);
  }

  /** A broker that was thought gone lives: others drive its calls by now, and it may not know. */
  onBack(listener: (brokerId: string) => void): void {
    this.backListeners.add(listener);
  }

  /** Others may have thought this broker gone: it stood still, was cut off, or its record was removed. */
  onDoubt(listener: () => void): void {
    this.doubtListeners.add(listener);
  }

  get alone(): boolean {
    return this.seen.size === 0;
  }

  /** No other broker was ever seen: nobody can have taken a call over. */
  get solitary(): boolean {
    return this.seen.size === 0 && this.departed.size === 0;
  }

  get others(): number {
    return this.seen.size;
  }

  /** This broker and the others that live, sorted. */
  live(): string[] {
    return [this.brokerId, ...this.seen.keys()].sort();
  }

  isLive(brokerId: string): boolean {
    return brokerId === this.brokerId || this.seen.has(brokerId);
  }

  /** Was it seen to go? Who was never seen is neither live nor gone. */
  isGone(brokerId: string): boolean {
    return this.departed.has(brokerId) && !this.isLive(brokerId);
  }

  private changed(change: RegistryChange): void {
    const key = change.kind === "put" ? change.record.key : change.key;
    if (key === this.brokerId) {
      if (change.kind === "delete" && !this.stopped) {
        this.context.log.warn("thought_gone", {});
        this.beat().catch((error: unknown) => this.context.log.warn("heartbeat_failed", reason(error)));
        this.doubted();
      }
      return;
    }
    if (change.kind === "delete") {
      // Also of one that was never seen: it may have left calls behind.
      if (!this.departed.has(key)) {
        this.gone(key);
      }
      return;
    }
    const isNew = !this.seen.has(key);
    this.seen.set(key, { at: this.context.clock.monotonic(), revision: change.record.revision });
    if (!isNew) {
      return;
    }
    const back = this.departed.delete(key);
    this.context.log.info("broker_seen", { other_broker_id: key, back });
    for (const listener of this.seenListeners) {
      listener();
    }
    if (back) {
      for (const listener of this.backListeners) {
        listener(key);
      }
    }
  }

  private gone(brokerId: string): void {
    this.seen.delete(brokerId);
    this.departed.add(brokerId);
    if (this.departed.size > GONE_MAX) {
      const oldest = this.departed.values().next().value;
      if (oldest !== undefined) {
        this.departed.delete(oldest);
      }
    }
    this.context.log.warn("broker_gone", { other_broker_id: brokerId });
    for (const listener of this.goneListeners) {
      listener(brokerId);
    }
  }

  private reached(connected: boolean): void {
    const back = connected && !this.connected;
    this.connected = connected;
    if (back) {
      this.doubted();
    }
  }

  /** Nobody was heard for a while, and this broker was not heard either: the others get their whole time again. */
  private doubted(): void {
    const at = this.context.clock.monotonic();
    for (const [brokerId, { revision }] of this.seen) {
      this.seen.set(brokerId, { at, revision });
    }
    for (const listener of this.doubtListeners) {
      listener();
    }
  }

  private tick(): void {
    if (this.stopped) {
      return;
    }
    const { clock, figures, timers } = this.context;
    timers.after(figures.heartbeatMs, () => {
      this.beat().catch((error: unknown) => this.context.log.warn("heartbeat_failed", reason(error)));
      if (this.connected) {
        for (const [brokerId, { at, revision }] of [...this.seen]) {
          if (clock.monotonic() - at > figures.goneAfterMs) {
            this.gone(brokerId);
            // Its record would look like a new broker to the next one that starts; whoever is first removes it.
            this.registry
              ?.delete(brokerId, revision)
              .catch((error: unknown) => this.context.log.warn("heartbeat_cleanup_failed", reason(error)));
          }
        }
      }
      this.tick();
    });
  }

  private async beat(): Promise<void> {
    if (!this.stopped) {
      await this.registry?.put(this.brokerId, JSON.stringify({ at: this.context.clock.now() }));
    }
  }
}

/** The failure of work that is done again with the next beat. */
function reason(error: unknown): { readonly error: string } {
  return { error: error instanceof Error ? error.message : String(error) };
}
