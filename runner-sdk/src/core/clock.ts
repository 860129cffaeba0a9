/** Time as the runner sees it, injected so that tests decide it. */
export interface Clock {
  /** Wall clock, Unix milliseconds. */
  now(): number;
  /** Monotonic milliseconds from any origin. */
  monotonic(): number;
  /** Calls `task` once after `delayMs`; at once in a later turn when it is 0 or less. */
  schedule(delayMs: number, task: () => void): { cancel(): void };
}

/** Longest delay that a platform timer holds; longer ones are armed again. */
const TIMER_MAX_MS = 2_147_483_647;

/** The platform's clock. Its timers keep a Node process alive, as an open connection does. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  schedule(delayMs, task) {
    let left = Math.max(0, delayMs);
    let timer: ReturnType<typeof setTimeout>;
    const arm = () => {
      const step = Math.min(left, TIMER_MAX_MS);
      left -= step;
      timer = setTimeout(() => (left > 0 ? arm() : task()), step);
    };
    arm();
    return { cancel: () => clearTimeout(timer) };
  },
};

/** One moment on both clocks. */
export interface Instant {
  readonly monotonicMs: number;
  readonly wallMs: number;
}

/** This moment on both clocks. */
export function instant(clock: Clock): Instant {
  return { monotonicMs: clock.monotonic(), wallMs: clock.now() };
}

/**
 * Milliseconds from one moment to a later one, by the clock that advanced more (G3): a monotonic clock may stand still while the
 * machine sleeps, a wall clock may be set back. Never negative.
 */
export function betweenMs(from: Instant, to: Instant): number {
  return Math.max(0, to.monotonicMs - from.monotonicMs, to.wallMs - from.wallMs);
}

/** Milliseconds since `from`, as {@link betweenMs} counts them. */
export function elapsedMs(clock: Clock, from: Instant): number {
  return betweenMs(from, instant(clock));
}

/** Waits `delayMs`, or until the signal aborts; resolves in both cases. */
export function pause(clock: Clock, delayMs: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const timer = clock.schedule(delayMs, done);
    function done() {
      timer.cancel();
      signal.removeEventListener("abort", done);
      resolve();
    }
    signal.addEventListener("abort", done);
  });
}
