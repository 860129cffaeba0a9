/**
 * The lines in which this broker's calls with an ordering key stand (X10, B4).
 *
 * Invariants:
 * - A call is granted only while it is at the head of its lane; who is at the head stays there until it settled, so what was seen
 *   once holds for as long as the call is open.
 * - A call leaves its lane only after its settlement was stored, and whoever finds a settled call at a head takes it out: a
 *   broker may die between the two.
 * - Who waits asks again and again: a word that a lane moved may get lost.
 */
import { createHash } from "node:crypto";
import type { CallRequest } from "../domain/call/call-state.js";
import type { Bus, Subscription } from "../domain/ports/bus.js";
import type { Clock, IdSource } from "../domain/ports/clock.js";
import type { LaneMember, LanePlace, LaneStore } from "../domain/ports/lanes.js";
import { LedgerError } from "../domain/ports/ledger.js";
import type { Log } from "../domain/ports/log.js";
import type { DrivenCall } from "./driver-context.js";
import type { Figures } from "./figures.js";
import type { Membership } from "./membership.js";
import type { TimerTask, TimerWheel } from "./timer-wheel.js";

/** A head that others wait behind is looked at after this time, and then again and again. */
const LOOK_FIRST_MS = 1_000;
const LOOK_AGAIN_MS = 5_000;
/** A head that no ledger knows leaves after this time: longer than a server that was cut off may lag behind. */
const UNKNOWN_MS = 60_000;
/** What failed for a reason of this broker's own is tried again after this time. */
const AGAIN_MS = 1_000;

/** One call of this broker in its lane. */
interface Standing {
  readonly lane: string;
  /** Undefined until it is stored. */
  place: LanePlace | undefined;
  joining: Promise<void>;
  /** It was seen at the head. */
  isHead: boolean;
  /** It is to be offered when it is at the head. */
  waiting: DrivenCall | undefined;
}

/** What this broker knows of a lane in which calls of its own wait. */
interface Line {
  readonly waiting: Set<string>;
  /** The head as it was seen last, since when, and when it is looked at next (monotonic). */
  head: LaneMember | undefined;
  headSinceMs: number;
  lookAtMs: number;
  checking: boolean;
  checkAgain: boolean;
  task: TimerTask | undefined;
}

export interface LaneDeskContext {
  readonly lanes: LaneStore;
  readonly bus: Bus;
  readonly clock: Pick<Clock, "monotonic">;
  readonly ids: Pick<IdSource, "random">;
  readonly log: Log;
  readonly figures: Pick<Figures, "offerRepeatMs">;
  readonly timers: TimerWheel;
  readonly membership: Pick<Membership, "alone" | "onGone">;
  /** What the ledger says of a call, whoever drives it. */
  readonly lookUp: (callId: string) => Promise<"open" | "settled" | "unknown">;
  /** The call came to the head of its lane. */
  readonly ready: (driver: DrivenCall) => void;
}

/** The lane of a call; undefined: it stands in none. One for each ordering key of an application, whatever the tool and the binding. */
export function laneOf(request: Pick<CallRequest, "application" | "orderingKey">): string | undefined {
  const { application, orderingKey } = request;
  return orderingKey === undefined ? undefined : createHash("sha256").update(`${application}\n${orderingKey}`).digest("hex").slice(0, 40);
}

export class LaneDesk {
  private readonly standings = new Map<string, Standing>();
  private readonly lines = new Map<string, Line>();
  private moves: Subscription | undefined;
  private stopped = false;

  constructor(private readonly context: LaneDeskContext) {}

  start(): void {
    this.moves = this.context.bus.subscribe("lanes", (lane) => this.moved(lane));
    // Who was to take a settled call out may be the one that is gone.
    this.context.membership.onGone(() => {
      for (const [lane, line] of this.lines) {
        line.lookAtMs = 0;
        this.check(lane, line);
      }
    });
  }

  stop(): void {
    this.stopped = true;
    this.moves?.unsubscribe();
    for (const { task } of this.lines.values()) {
      task?.cancel();
    }
    this.lines.clear();
    this.standings.clear();
  }

  /** Calls of this broker that wait for their turn: 0 at rest. */
  get size(): number {
    let count = 0;
    for (const { waiting } of this.lines.values()) {
      count += waiting.size;
    }
    return count;
  }

  isWaiting(driver: DrivenCall): boolean {
    return this.standings.get(driver.callId)?.waiting === driver;
  }

  /**
   * Resolves when the call stands in its lane: not before, it is acknowledged to its agent. `isDriven`: this broker drives it.
   * Rejects with what the store rejects with.
   */
  async joined(callId: string, request: CallRequest, isDriven: boolean): Promise<void> {
    const lane = laneOf(request);
    if (lane === undefined) {
      return;
    }
    const standing = this.standing(callId, lane);
    try {
      await standing.joining;
    } finally {
      if (!isDriven && standing.waiting === undefined && !standing.isHead && this.standings.get(callId) === standing) {
        this.standings.delete(callId);
      }
    }
  }

  /** Whether the call may be granted; false: it stands in its lane from now on, and is `ready` when it came to the head. */
  mayGo(driver: DrivenCall): boolean {
    const lane = laneOf(driver.known.record.request);
    if (lane === undefined) {
      return true;
    }
    const standing = this.standing(driver.callId, lane);
    if (standing.isHead) {
      return true;
    }
    if (standing.waiting !== driver && !this.stopped) {
      standing.waiting = driver;
      const line = this.line(lane);
      line.waiting.add(driver.callId);
      this.checkLater(lane, line);
      void this.checkWhenJoined(driver, standing);
    }
    return false;
  }

  /** The call is granted, settled, or another broker's: it is not offered from here. */
  withdraw(driver: DrivenCall): void {
    const standing = this.standings.get(driver.callId);
    if (standing !== undefined) {
      this.waitNoLonger(driver.callId, standing);
    }
  }

  /** Another broker drives the call: what was seen of it here is of no use. */
  forget(driver: DrivenCall): void {
    this.withdraw(driver);
    this.standings.delete(driver.callId);
  }

  /** The settlement of the call is stored: the next one may go. */
  settled(driver: DrivenCall): void {
    const lane = laneOf(driver.known.record.request);
    if (lane === undefined) {
      return;
    }
    const { callId } = driver;
    const standing = this.standings.get(callId);
    this.forget(driver);
    if (!this.stopped) {
      this.leave(lane, callId, standing).catch((error: unknown) => this.failed(callId, error));
    }
  }

  private async leave(lane: string, callId: string, standing: Standing | undefined): Promise<void> {
    await standing?.joining.catch(() => undefined);
    const { lanes } = this.context;
    // Without a place of its own knowledge it is taken out where it is at the head, and otherwise when it gets there.
    const head = standing?.place === undefined ? await lanes.first(lane) : { callId, place: standing.place };
    if (head?.callId === callId) {
      await lanes.leave(lane, head);
      this.tell(lane);
    }
  }

  /** Says that the lane has another head. */
  private tell(lane: string): void {
    if (this.stopped) {
      return;
    }
    this.moved(lane);
    if (!this.context.membership.alone) {
      this.context.bus.publish("lanes", lane);
    }
  }

  private moved(lane: string): void {
    const line = this.lines.get(lane);
    if (line !== undefined) {
      this.check(lane, line);
    }
  }

  private standing(callId: string, lane: string): Standing {
    const present = this.standings.get(callId);
    if (present !== undefined) {
      return present;
    }
    const standing: Standing = { lane, place: undefined, joining: Promise.resolve(), isHead: false, waiting: undefined };
    this.standings.set(callId, standing);
    this.join(callId, standing);
    return standing;
  }

  private join(callId: string, standing: Standing): void {
    standing.joining = this.context.lanes.join(standing.lane, callId).then((place) => {
      standing.place = place;
    });
    standing.joining.catch(() => {
      // It is asked for again by whoever needs it.
      if (this.standings.get(callId) === standing && standing.waiting === undefined) {
        this.standings.delete(callId);
      }
    });
  }

  private async checkWhenJoined(driver: DrivenCall, standing: Standing): Promise<void> {
    try {
      await standing.joining;
    } catch (error) {
      this.failed(driver.callId, error);
      this.context.timers.after(AGAIN_MS, () => {
        if (standing.waiting === driver && !this.stopped) {
          this.join(driver.callId, standing);
          void this.checkWhenJoined(driver, standing);
        }
      });
      return;
    }
    this.moved(standing.lane);
  }

  private line(lane: string): Line {
    let line = this.lines.get(lane);
    if (line === undefined) {
      line = { waiting: new Set(), head: undefined, headSinceMs: 0, lookAtMs: 0, checking: false, checkAgain: false, task: undefined };
      this.lines.set(lane, line);
    }
    return line;
  }

  private waitNoLonger(callId: string, standing: Standing): void {
    standing.waiting = undefined;
    const line = this.lines.get(standing.lane);
    line?.waiting.delete(callId);
    if (line?.waiting.size === 0) {
      line.task?.cancel();
      this.lines.delete(standing.lane);
    }
  }

  private checkLater(lane: string, line: Line): void {
    const { timers, figures, ids } = this.context;
    line.task ??= timers.after(figures.offerRepeatMs * (0.75 + ids.random() / 2), () => {
      line.task = undefined;
      if (this.lines.get(lane) === line) {
        this.check(lane, line);
        this.checkLater(lane, line);
      }
    });
  }

  /** Looks who is at the head, once at a time; asked for meanwhile, once more. */
  private check(lane: string, line: Line): void {
    if (line.checking) {
      line.checkAgain = true;
      return;
    }
    line.checking = true;
    const once = async (): Promise<void> => {
      try {
        do {
          line.checkAgain = false;
          while (await this.checkHead(lane, line)) {
            // A settled call was taken out: the next one may be another.
            line.lookAtMs = 0;
          }
        } while (line.checkAgain && !this.stopped);
      } finally {
        line.checking = false;
      }
    };
    once().catch((error: unknown) => this.failed(line.head?.callId ?? lane, error));
  }

  /** True: the head was taken out, and there is a new one to look at. */
  private async checkHead(lane: string, line: Line): Promise<boolean> {
    const head = await this.context.lanes.first(lane);
    if (this.stopped || this.lines.get(lane) !== line) {
      return false;
    }
    if (head === undefined) {
      this.rejoin(line);
      return false;
    }
    const standing = this.standings.get(head.callId);
    const driver = standing?.waiting;
    if (standing !== undefined && driver !== undefined) {
      standing.place = head.place;
      standing.isHead = true;
      this.waitNoLonger(head.callId, standing);
      this.context.ready(driver);
      return false;
    }
    return this.look(lane, line, head);
  }

  /** Who joined and is nowhere lost its place with the store: there is nothing to keep it from the end of the lane. */
  private rejoin(line: Line): void {
    for (const callId of line.waiting) {
      const standing = this.standings.get(callId);
      const driver = standing?.waiting;
      if (standing?.place !== undefined && driver !== undefined) {
        standing.place = undefined;
        this.join(callId, standing);
        void this.checkWhenJoined(driver, standing);
      }
    }
  }

  private async look(lane: string, line: Line, head: LaneMember): Promise<boolean> {
    const { clock, lanes, log } = this.context;
    const now = clock.monotonic();
    if (line.head?.place !== head.place) {
      const isSuspect = line.head !== undefined && line.lookAtMs === 0;
      line.head = head;
      line.headSinceMs = now;
      line.lookAtMs = isSuspect ? 0 : now + LOOK_FIRST_MS;
    }
    if (now < line.lookAtMs) {
      return false;
    }
    line.lookAtMs = now + LOOK_AGAIN_MS;
    const found = await this.context.lookUp(head.callId);
    if (found === "open" || (found === "unknown" && clock.monotonic() - line.headSinceMs < UNKNOWN_MS)) {
      return false;
    }
    log.warn("lane_head_removed", { call_id: head.callId, reason: found });
    await lanes.leave(lane, head);
    this.tell(lane);
    return true;
  }

  private failed(callId: string, error: unknown): void {
    if (this.stopped || (error instanceof LedgerError && error.code === "closed")) {
      return;
    }
    this.context.log.error("lane_failed", { call_id: callId, error: error instanceof Error ? error.message : String(error) });
  }
}
