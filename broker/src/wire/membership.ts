/**
 * Which brokers live. Each writes a heartbeat record under its incarnation; the others time the record's revisions on
 * their own monotonic clock (B1): nothing depends on wall clocks or on a record running out by itself.
 */
import type { Bus, Registry, RegistryChange, Subscription } from "../domain/ports/bus.js";
import type { Clock } from "../domain/ports/clock.js";
import type { Log } from "../domain/ports/log.js";
import type { Figures } from "./figures.js";
import type { TimerWheel } from "./timer-wheel.js";

export class Membership {
  /** Monotonic time of the newest sign of life of each other broker. */
  private readonly seen = new Map<string, number>();
  private readonly goneListeners = new Set<(brokerId: string) => void>();
  private registry: Registry | undefined;
  private watching: Subscription | undefined;
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
    this.watching = await this.registry.watch((change) => this.changed(change));
    this.tick();
  }

  /** Tells the others at once that this broker is gone. */
  async stop(): Promise<void> {
    this.stopped = true;
    this.watching?.unsubscribe();
    await this.registry?.delete(this.brokerId);
  }

  onGone(listener: (brokerId: string) => void): void {
    this.goneListeners.add(listener);
  }

  get alone(): boolean {
    return this.seen.size === 0;
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

  private changed(change: RegistryChange): void {
    const key = change.kind === "put" ? change.record.key : change.key;
    if (key === this.brokerId) {
      return;
    }
    if (change.kind === "delete") {
      this.gone(key);
      return;
    }
    if (!this.seen.has(key)) {
      this.context.log.info("broker_seen", { other_broker_id: key });
    }
    this.seen.set(key, this.context.clock.monotonic());
  }

  private gone(brokerId: string): void {
    if (!this.seen.delete(brokerId)) {
      return;
    }
    this.context.log.warn("broker_gone", { other_broker_id: brokerId });
    for (const listener of this.goneListeners) {
      listener(brokerId);
    }
  }

  private tick(): void {
    if (this.stopped) {
      return;
    }
    const { clock, figures, timers, log } = this.context;
    timers.after(figures.heartbeatMs, () => {
      const beat = this.beat();
      beat.catch((error: unknown) => log.warn("heartbeat_failed", { error: error instanceof Error ? error.message : String(error) }));
      for (const [brokerId, seenAt] of [...this.seen]) {
        if (clock.monotonic() - seenAt > figures.goneAfterMs) {
          this.gone(brokerId);
          // Its record would look like a new broker to the next one that starts; whoever is first removes it.
          this.registry
            ?.delete(brokerId)
            .catch((error: unknown) =>
              log.warn("heartbeat_cleanup_failed", { error: error instanceof Error ? error.message : String(error) }),
            );
        }
      }
      this.tick();
    });
  }

  private async beat(): Promise<void> {
    await this.registry?.put(this.brokerId, JSON.stringify({ at: this.context.clock.now() }));
  }
}
