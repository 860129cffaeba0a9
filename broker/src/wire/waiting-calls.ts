/** The queued calls that this broker drives and for which no runner was free, found by what a runner serves; oldest first. */
import type { DrivenCall } from "./driver-context.js";
import { handlerKeyOf, type Requirement, requirementOf } from "./requirement.js";
import type { Session } from "./session.js";
import { serves } from "./session-registry.js";

interface Waiting {
  readonly driver: DrivenCall;
  readonly requirement: Requirement;
  readonly order: number;
}

export class WaitingCalls {
  /** By handler key, then by subject (empty: none). */
  private readonly lanes = new Map<string, Map<string, Set<Waiting>>>();
  private readonly entries = new Map<DrivenCall, Waiting>();
  private order = 0;

  get size(): number {
    return this.entries.size;
  }

  has(driver: DrivenCall): boolean {
    return this.entries.has(driver);
  }

  add(driver: DrivenCall): void {
    if (this.entries.has(driver)) {
      return;
    }
    const requirement = requirementOf(driver.known.record.request);
    this.order += 1;
    const waiting: Waiting = { driver, requirement, order: this.order };
    this.entries.set(driver, waiting);
    const subjects = getOrAdd(this.lanes, handlerKeyOf(requirement), () => new Map<string, Set<Waiting>>());
    getOrAdd(subjects, requirement.subject ?? "", () => new Set<Waiting>()).add(waiting);
  }

  remove(driver: DrivenCall): void {
    const waiting = this.entries.get(driver);
    if (waiting === undefined) {
      return;
    }
    this.entries.delete(driver);
    const key = handlerKeyOf(waiting.requirement);
    const subjects = this.lanes.get(key);
    const subject = waiting.requirement.subject ?? "";
    const lane = subjects?.get(subject);
    lane?.delete(waiting);
    if (lane?.size === 0) {
      subjects?.delete(subject);
    }
    if (subjects?.size === 0) {
      this.lanes.delete(key);
    }
  }

  /** Is a call waiting for this handler, whatever its subject? */
  hasFor(handlerKey: string): boolean {
    return this.lanes.has(handlerKey);
  }

  /** The calls that wait for this handler. */
  *of(handlerKey: string): IterableIterator<DrivenCall> {
    for (const lane of this.lanes.get(handlerKey)?.values() ?? []) {
      for (const waiting of lane) {
        yield waiting.driver;
      }
    }
  }

  /** The call that waits longest and that `session` serves. */
  next(session: Session): DrivenCall | undefined {
    const subject = session.bindingKind === "backend" ? "" : (session.subject ?? "");
    let oldest: Waiting | undefined;
    const keys = this.lanes.size < session.handlers.size ? this.lanes.keys() : session.handlers.keys();
    for (const key of keys) {
      if (!session.handlers.has(key)) {
        continue;
      }
      const head = this.lanes.get(key)?.get(subject)?.values().next().value;
      if (head !== undefined && serves(session, head.requirement) && (oldest === undefined || head.order < oldest.order)) {
        oldest = head;
      }
    }
    return oldest?.driver;
  }
}

function getOrAdd<K, V>(map: Map<K, V>, key: K, make: () => V): V {
  let value = map.get(key);
  if (value === undefined) {
    value = make();
    map.set(key, value);
  }
  return value;
}
