/**
 * Sends the runners of a broker that stops elsewhere, and waits for what they run.
 *
 * Invariants: runners are told one after the other over a while, so that they do not all dial another broker at the same moment; who
 * was not told yet goes on taking calls; nobody is told later than a quarter of the drain.
 */
import type { Clock } from "../domain/ports/clock.js";
import type { Session } from "./session.js";
import type { TimerWheel } from "./timer-wheel.js";

/** Runners that are told in a second, where the drain lasts long enough. */
const TOLD_A_SECOND = 500;
const STEP_MS = 20;
const LOOK_MS = 50;

/** What a drain needs of a session. */
export type DrainedSession = Pick<Session, "channel" | "closed" | "draining" | "grants">;

export interface SessionDrainContext {
  readonly timers: TimerWheel;
  readonly clock: Pick<Clock, "monotonic">;
  /** The sessions of this broker at the moment. */
  readonly sessions: () => Iterable<DrainedSession>;
}

/** Resolves when all were told and none holds a grant, or `drainMs` are over. */
export async function drainSessions({ timers, clock, sessions }: SessionDrainContext, drainMs: number): Promise<void> {
  const endsAt = clock.monotonic() + drainMs;
  const pause = (delayMs: number): Promise<void> => new Promise((resolve) => timers.after(delayMs, resolve));
  const untold = [...sessions()];
  const tellForMs = Math.min(drainMs / 4, (untold.length / TOLD_A_SECOND) * 1_000);
  const inStep = Math.max(1, Math.ceil((untold.length * STEP_MS) / Math.max(STEP_MS, tellForMs)));
  for (let from = 0; from < untold.length; from += inStep) {
    if (from > 0 && drainMs > 0) {
      await pause(STEP_MS);
    }
    const leftMs = Math.max(0, Math.ceil(endsAt - clock.monotonic()));
    for (const session of untold.slice(from, from + inStep)) {
      tell(session, leftMs);
    }
  }
  while (drainMs > 0 && clock.monotonic() < endsAt && [...sessions()].some((session) => session.grants.size > 0)) {
    await pause(LOOK_MS);
  }
}

/**
 * Closes the sessions one after the other over a while, as a drain tells them, so that they do not all dial another broker at the
 * same moment. Stops when `over` says that there is no reason any more.
 */
export async function closeInTurn(
  { timers, sessions }: Pick<SessionDrainContext, "timers" | "sessions">,
  close: (session: DrainedSession) => void,
  over: () => boolean,
): Promise<void> {
  const inStep = (TOLD_A_SECOND * STEP_MS) / 1_000;
  let inTurn = 0;
  for (const session of [...sessions()]) {
    if (inTurn === inStep) {
      inTurn = 0;
      await new Promise<void>((resolve) => timers.after(STEP_MS, resolve));
    }
    if (over()) {
      return;
    }
    inTurn += 1;
    if (!session.closed) {
      close(session);
    }
  }
}

function tell(session: DrainedSession, deadlineMs: number): void {
  if (!session.closed) {
    session.draining = true;
    session.channel.send({ frame: { $case: "drain", value: { reason: "the broker is shutting down", deadlineMs } } });
  }
}
