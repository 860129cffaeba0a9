/**
 * Under `dev` a runner's tools become a toolset of its binding's name. A call that comes between the runner's welcome
 * and the merge of its definitions waits for them, so that the first call after `ready` finds its tool.
 */
import type { TimerWheel } from "./timer-wheel.js";

const WAIT_MS = 5_000;

export class AwaitedDefinitions {
  private readonly pending = new Map<string, Set<Promise<void>>>();

  constructor(private readonly timers: TimerWheel) {}

  /** Definitions of this binding will come; the returned function says that they came, or will not. */
  await(binding: string): () => void {
    let resolve: () => void = () => undefined;
    const merged = new Promise<void>((done) => {
      resolve = done;
    });
    const late = this.timers.after(WAIT_MS, () => resolve());
    const waiting = this.pending.get(binding) ?? new Set();
    this.pending.set(binding, waiting.add(merged));
    return () => {
      late.cancel();
      waiting.delete(merged);
      if (waiting.size === 0 && this.pending.get(binding) === waiting) {
        this.pending.delete(binding);
      }
      resolve();
    };
  }

  async settled(binding: string): Promise<void> {
    const waiting = this.pending.get(binding);
    if (waiting !== undefined) {
      await Promise.all(waiting);
    }
  }
}
