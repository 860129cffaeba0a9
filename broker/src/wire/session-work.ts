/**
 * What the frames of one session started and is not over.
 *
 * Invariants: what concerns one grant is done in the order of its frames, also when its driver is elsewhere; other grants do
 * not wait for it; there is never more under way than {@link WORK_MAX}, however fast a runner sends: its frames then wait
 * to be read; the end of the session wakes whatever pauses.
 */
import type { TimerWheel } from "./timer-wheel.js";

/** Frames whose consequences are under way at once: four times what a runner can run. */
const WORK_MAX = 4_096;
/** What these hold together, in characters. */
const WORK_CHARACTERS_MAX = 32 * 1_048_576;

export class SessionWork {
  private readonly lanes = new Map<string, { tail: Promise<void> | undefined; waiting: number }>();
  private readonly sleepers = new Set<() => void>();
  private readonly forRoom = new Set<() => void>();
  private count = 0;
  private characters = 0;
  private ended = false;

  constructor(private readonly timers: TimerWheel) {}

  /** Jobs that are not over. */
  get size(): number {
    return this.count;
  }

  get crowded(): boolean {
    return (this.count >= WORK_MAX || this.characters >= WORK_CHARACTERS_MAX) && !this.ended;
  }

  /** Jobs of this grant that wait for their turn or have it. */
  depth(grantId: string): number {
    return this.lanes.get(grantId)?.waiting ?? 0;
  }

  /** Does `job` after all earlier ones of the same grant; at once when there is none. `characters`: what it holds. Jobs never reject. */
  inOrder(grantId: string, characters: number, job: () => Promise<void>): void {
    const lane = this.lanes.get(grantId) ?? { tail: undefined, waiting: 0 };
    this.lanes.set(grantId, lane);
    lane.waiting += 1;
    this.begun(characters);
    const work = lane.tail === undefined ? job() : lane.tail.then(job);
    lane.tail = work.then(() => {
      this.over(characters);
      lane.waiting -= 1;
      if (lane.waiting === 0) {
        this.lanes.delete(grantId);
      }
    });
  }

  /** Does `job` beside everything else. Jobs never reject. */
  beside(job: () => Promise<void>): void {
    this.begun(0);
    void job().then(() => this.over(0));
  }

  /** Resolves when there is room for another frame, or the session is over. */
  room(): Promise<void> {
    return this.crowded ? new Promise((resolve) => this.forRoom.add(resolve)) : Promise.resolve();
  }

  /** Resolves after `delayMs`, at once when the session ends. */
  pause(delayMs: number): Promise<void> {
    if (this.ended) {
      return Promise.resolve();
    }
    return new Promise((resolve) => {
      const task = this.timers.after(delayMs, () => wake());
      const wake = (): void => {
        task.cancel();
        this.sleepers.delete(wake);
        resolve();
      };
      this.sleepers.add(wake);
    });
  }

  /** The session is over: nothing waits any longer. */
  end(): void {
    this.ended = true;
    for (const wake of [...this.sleepers, ...this.forRoom]) {
      wake();
    }
    this.forRoom.clear();
  }

  private begun(characters: number): void {
    this.count += 1;
    this.characters += characters;
  }

  private over(characters: number): void {
    this.count -= 1;
    this.characters -= characters;
    if (!this.crowded && this.forRoom.size > 0) {
      for (const wake of this.forRoom) {
        wake();
      }
      this.forRoom.clear();
    }
  }
}
