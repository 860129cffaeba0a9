/**
 * Virtual time for whole sites of brokers, runners and agents in one process.
 *
 * Invariants: everything that takes time is an event of the world; between two events all promises come to rest; the same
 * seed gives the same history, event by event. A process that is stopped gets what came for it meanwhile when it is woken:
 * its timers first, then its messages in their order. A process that is dead gets nothing any more.
 */
import type { Clock, IdSource } from "../../domain/ports/clock.js";

/** Numbers that follow from a seed. */
export class Random {
  private state: number;

  constructor(private readonly seed: number) {
    this.state = seed >>> 0;
  }

  /**
   * Numbers that follow from the same seed and from `name`, however many were drawn here: what happens in one place of the
   * world stays the same when less happens in another, which is what makes a failing schedule shrink.
   */
  fork(name: string): Random {
    let hash = (this.seed ^ 0x9e3779b9) >>> 0;
    for (let index = 0; index < name.length; index += 1) {
      hash = Math.imul(hash ^ name.charCodeAt(index), 0x01000193) >>> 0;
    }
    return new Random(hash);
  }

  /** In [0, 1). */
  next(): number {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let mixed = this.state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  }

  chance(part: number): boolean {
    return this.next() < part;
  }

  between(low: number, high: number): number {
    return low + this.next() * (high - low);
  }

  integer(low: number, high: number): number {
    return Math.floor(this.between(low, high + 1));
  }

  pick<T>(from: readonly T[]): T {
    const found = from[Math.floor(this.next() * from.length)];
    if (found === undefined) {
      throw new Error("nothing to pick from");
    }
    return found;
  }
}

interface WorldEvent {
  readonly at: number;
  readonly order: number;
  readonly run: () => void;
  cancelled: boolean;
}

/** Wall clocks start here. */
const EPOCH_MS = Date.UTC(2026, 0, 1);

export class World {
  /** Milliseconds since the world began. */
  now = 0;
  /** Called after each event, when everything has come to rest: what must hold at every moment is checked here. */
  onStep: () => void = () => undefined;
  private order = 0;
  private readonly heap: WorldEvent[] = [];

  constructor(readonly random: Random) {}

  after(delayMs: number, run: () => void): { cancel(): void } {
    const event: WorldEvent = { at: this.now + Math.max(0, delayMs), order: this.order, run, cancelled: false };
    this.order += 1;
    this.push(event);
    return {
      cancel: () => {
        event.cancelled = true;
      },
    };
  }

  sleep(delayMs: number): Promise<void> {
    return new Promise((resolve) => this.after(delayMs, resolve));
  }

  /** Lets time go by until `done` holds, asked after each event; false: it did not hold before `limitMs`. */
  async run(limitMs: number, done: () => boolean): Promise<boolean> {
    await rest();
    while (!done()) {
      const event = this.pop();
      if (event === undefined || event.at > limitMs) {
        if (event !== undefined) {
          this.push(event);
        }
        this.now = Math.max(this.now, limitMs);
        return done();
      }
      if (event.cancelled) {
        continue;
      }
      this.now = event.at;
      event.run();
      await rest();
      this.onStep();
    }
    return true;
  }

  private push(event: WorldEvent): void {
    const { heap } = this;
    heap.push(event);
    let index = heap.length - 1;
    while (index > 0) {
      const parent = (index - 1) >> 1;
      if (!before(event, heap[parent])) {
        break;
      }
      heap[index] = heap[parent] as WorldEvent;
      index = parent;
    }
    heap[index] = event;
  }

  private pop(): WorldEvent | undefined {
    const { heap } = this;
    const first = heap[0];
    const last = heap.pop();
    if (first === undefined || last === undefined || heap.length === 0) {
      return first;
    }
    let index = 0;
    for (;;) {
      const left = 2 * index + 1;
      const right = left + 1;
      const child = right < heap.length && before(heap[right], heap[left]) ? right : left;
      if (child >= heap.length || !before(heap[child], last)) {
        break;
      }
      heap[index] = heap[child] as WorldEvent;
      index = child;
    }
    heap[index] = last;
    return first;
  }
}

function before(a: WorldEvent | undefined, b: WorldEvent | undefined): boolean {
  return a !== undefined && b !== undefined && (a.at < b.at || (a.at === b.at && a.order < b.order));
}

/** All promises come to rest: the loop's own turn follows them. */
function rest(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/**
 * A process of the world, which can be stopped, woken and killed, and whose machine can sleep: then its monotonic clock stands
 * still, and its timers with it, while the wall clock goes on.
 */
export class SimProcess {
  /** What its wall clock is ahead of the world's. */
  wallOffsetMs = 0;
  /** Numbers of its own. */
  readonly random: Random;
  private state: "running" | "stopped" | "dead" = "running";
  /** How long its machine slept, and since when it sleeps. */
  private sleptMs = 0;
  private asleepSince: number | undefined;
  private timersDue: (() => void)[] = [];
  private arrived: (() => void)[] = [];

  constructor(
    readonly world: World,
    readonly name: string,
  ) {
    this.random = world.random.fork(name);
  }

  get running(): boolean {
    return this.state === "running";
  }

  get dead(): boolean {
    return this.state === "dead";
  }

  stop(): void {
    if (this.state === "running") {
      this.state = "stopped";
    }
  }

  /** Its machine goes to sleep, until `wake`. */
  sleep(): void {
    if (this.state === "running") {
      this.state = "stopped";
      this.asleepSince = this.world.now;
    }
  }

  wake(): void {
    if (this.state !== "stopped") {
      return;
    }
    this.state = "running";
    this.sleptMs += this.asleepSince === undefined ? 0 : this.world.now - this.asleepSince;
    this.asleepSince = undefined;
    const due = [...this.timersDue, ...this.arrived];
    this.timersDue = [];
    this.arrived = [];
    for (const task of due) {
      // It may be stopped again before they all ran.
      this.world.after(0, () => this.deliver(task));
    }
  }

  kill(): void {
    this.state = "dead";
    this.timersDue = [];
    this.arrived = [];
  }

  private monotonic(): number {
    return (this.asleepSince ?? this.world.now) - this.sleptMs;
  }

  /** Runs `task` in the process: now, when it is woken, or never. */
  deliver(task: () => void): void {
    if (this.state === "running") {
      task();
    } else if (this.state === "stopped") {
      this.arrived.push(task);
    }
  }

  /** Something comes in for the process, `delayMs` from now. */
  arrive(delayMs: number, task: () => void): void {
    this.world.after(delayMs, () => this.deliver(task));
  }

  /** Resolves in the process, `delayMs` from now. */
  turn(delayMs: number): Promise<void> {
    return new Promise((resolve) => this.arrive(delayMs, resolve));
  }

  readonly clock: Clock = {
    now: () => Math.floor(EPOCH_MS + this.world.now + this.wallOffsetMs),
    monotonic: () => this.monotonic(),
    schedule: (delayMs, task) => {
      let cancelled = false;
      const dueAt = this.monotonic() + Math.max(0, delayMs);
      const run = (): void => {
        const leftMs = dueAt - this.monotonic();
        if (cancelled || this.state === "dead") {
          return;
        }
        if (this.state === "stopped") {
          this.timersDue.push(run);
        } else if (leftMs > SAME_MOMENT_MS) {
          // The machine slept meanwhile, and its clock with it.
          this.world.after(leftMs, run);
        } else {
          task();
        }
      };
      this.world.after(delayMs, run);
      return {
        cancel: () => {
          cancelled = true;
        },
      };
    },
  };
}

/** Sums of fractions differ by less. */
const SAME_MOMENT_MS = 0.000_1;

const ALPHABET = "abcdefghijklmnopqrstuvwxyz234567";

/** Ids that follow from the world's numbers. */
export function simIds(random: Random): IdSource {
  return {
    next(prefix) {
      let id = `${prefix}_`;
      for (let index = 0; index < 26; index += 1) {
        id += ALPHABET[random.integer(0, 31)];
      }
      return id;
    },
    random: () => random.next(),
  };
}
