/**
 * The queued calls that this broker drives and for which no runner was free. Calls that the same runners can take lie in one
 * lane, in a fair order (X8); lanes are found by what a runner serves.
 */
import type { DrivenCall } from "./driver-context.js";
import { FairQueue } from "./fair-queue.js";
import { handlerKeyOf, laneKey, laneKeyOf, placeKey, type Requirement, requirementOf } from "./requirement.js";
import type { Session } from "./session.js";

export interface Lane {
  readonly key: string;
  readonly requirement: Requirement;
  readonly calls: Pick<FairQueue<DrivenCall>, "next">;
}

interface OwnLane extends Lane {
  readonly calls: FairQueue<DrivenCall>;
}

export class WaitingCalls {
  private readonly lanes = new Map<string, OwnLane>();
  private readonly byPlace = new Map<string, Set<OwnLane>>();
  private readonly order = new Map<DrivenCall, { readonly lane: OwnLane; readonly number: number }>();
  private count = 0;

  get size(): number {
    return this.order.size;
  }

  has(driver: DrivenCall): boolean {
    return this.order.has(driver);
  }

  /** Behind those of its subject that are as urgent; a call that waits already keeps its place. */
  add(driver: DrivenCall): Lane {
    const present = this.order.get(driver);
    if (present !== undefined) {
      return present.lane;
    }
    const requirement = requirementOf(driver.known.record.request);
    const key = laneKeyOf(requirement);
    let lane = this.lanes.get(key);
    if (lane === undefined) {
      lane = { key, requirement, calls: new FairQueue() };
      this.lanes.set(key, lane);
      const place = placeOf(requirement);
      const neighbours = this.byPlace.get(place) ?? new Set();
      this.byPlace.set(place, neighbours.add(lane));
    }
    this.count += 1;
    lane.calls.add(driver, driver.known.record.request);
    this.order.set(driver, { lane, number: this.count });
    return lane;
  }

  /** A runner was found for it: the other subjects come before its own again. */
  serve(driver: DrivenCall): void {
    this.order.get(driver)?.lane.calls.serve(driver);
    this.remove(driver);
  }

  /** It waits no longer. */
  remove(driver: DrivenCall): void {
    const lane = this.order.get(driver)?.lane;
    if (lane === undefined) {
      return;
    }
    this.order.delete(driver);
    lane.calls.remove(driver);
    if (lane.calls.size > 0) {
      return;
    }
    this.lanes.delete(lane.key);
    const place = placeOf(lane.requirement);
    const neighbours = this.byPlace.get(place);
    neighbours?.delete(lane);
    if (neighbours?.size === 0) {
      this.byPlace.delete(place);
    }
  }

  /** The calls that wait for the runners that could take this one; undefined: none does. */
  laneFor(requirement: Requirement): Lane | undefined {
    return this.lanes.get(laneKeyOf(requirement));
  }

  lane(key: string): Lane | undefined {
    return this.lanes.get(key);
  }

  /** The lanes of one binding and subject, whatever the tool. */
  lanesAt(place: string): readonly Lane[] {
    return [...(this.byPlace.get(place) ?? [])];
  }

  /** The call whose turn it is of those that `session` serves: of each lane its next one, of these an interactive one, then the oldest. */
  next(session: Session): DrivenCall | undefined {
    const subject = session.bindingKind === "backend" ? null : session.subject;
    if (session.bindingKind !== "backend" && subject === null) {
      return undefined;
    }
    let first: { readonly driver: DrivenCall; readonly number: number } | undefined;
    const place = this.byPlace.get(placeKey(session.ref.application, session.ref.binding, subject));
    if (place === undefined) {
      return undefined;
    }
    for (const lane of served(place, session, (handler) => this.lanes.get(laneKey(handler, subject)))) {
      const driver = lane.calls.next;
      const number = driver === undefined ? undefined : this.order.get(driver)?.number;
      if (driver === undefined || number === undefined) {
        continue;
      }
      const rank = driver.known.record.request.priority === "interactive" ? number : this.count + number;
      if (first === undefined || rank < first.number) {
        first = { driver, number: rank };
      }
    }
    return first?.driver;
  }
}

/** The lanes that `session` has handlers for, found from the smaller side. */
function* served(place: ReadonlySet<OwnLane>, session: Session, find: (handler: string) => OwnLane | undefined): IterableIterator<OwnLane> {
  if (place.size <= session.handlers.size) {
    for (const lane of place) {
      if (session.handlers.has(handlerKeyOf(lane.requirement))) {
        yield lane;
      }
    }
    return;
  }
  for (const handler of session.handlers.keys()) {
    const lane = find(handler);
    if (lane !== undefined) {
      yield lane;
    }
  }
}

function placeOf({ application, binding, subject }: Requirement): string {
  return placeKey(application, binding, subject);
}
