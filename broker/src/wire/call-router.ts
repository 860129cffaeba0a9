/**
 * Brings a command to the driver of its call: here, on another broker, or, when that one is gone or does not answer,
 * here after this broker adopted the call. Compare-and-append makes every race of two adopters harmless.
 *
 * Invariants: a command that changes a call is carried out by its driver only; what only looks is answered from the log when
 * the driver does not answer; a read that began before a command came in never answers it; whoever adopts a call from a
 * broker that lives tells it so.
 */
import { isSettledState } from "../domain/call/call-state.js";
import { type Bus, BusError, type Subscription } from "../domain/ports/bus.js";
import type { Log } from "../domain/ports/log.js";
import type { BrokerPost } from "./broker-post.js";
import { CallDriver, holds } from "./call-driver.js";
import type { DriverAnswer, DriverCommand, RunnerRef } from "./commands.js";
import { type DriverContext, NotDriver } from "./driver-context.js";
import type { DriverTable } from "./driver-table.js";
import type { Membership } from "./membership.js";
import { concerns, type Performer } from "./perform.js";
import type { SessionRef } from "./session.js";

const ROUTES_MAX = 10;

export class CallNotFound extends Error {
  override readonly name = "CallNotFound";
}

/** Where the driver of a call was last reached; kept up to date by each command. */
export interface DriverHint {
  driver: string | undefined;
}

interface Read {
  readonly under: Promise<CallDriver | undefined>;
  /** Begins when `under` is over: for those who came while it was under way. */
  next: Promise<CallDriver | undefined> | undefined;
}

export class CallRouter {
  private endpoint: Subscription | undefined;
  private readonly reads = new Map<string, Read>();
  /** Those whose leases do not count yet. */
  private readonly adopting = new Set<CallDriver>();

  constructor(
    private readonly context: {
      readonly driver: () => DriverContext;
      readonly table: DriverTable;
      readonly membership: Membership;
      readonly bus: Bus;
      readonly post: BrokerPost;
      readonly performer: Performer;
      readonly log: Log;
    },
  ) {}

  start(): void {
    const { bus, membership } = this.context;
    this.endpoint = bus.respond(`broker.${membership.brokerId}.command`, async (payload) => {
      const { callId, command } = JSON.parse(payload) as { callId: string; command: DriverCommand };
      return JSON.stringify(await this.hereOnly(callId, command));
    });
  }

  stop(): void {
    this.endpoint?.unsubscribe();
  }

  /** Rejects with {@link CallNotFound}. */
  async command(callId: string, command: DriverCommand, hint: DriverHint = { driver: undefined }): Promise<DriverAnswer> {
    const here = this.here(callId) ?? (await this.present(callId));
    let answer = here === undefined ? undefined : await this.perform(here, command);
    if (answer === undefined) {
      answer = await this.route(callId, command, hint);
    } else {
      hint.driver = this.context.membership.brokerId;
    }
    if (answer.kind === "not_found") {
      throw new CallNotFound(callId);
    }
    return answer;
  }

  /** The driver of the call, or one that knows how it settled, where this broker has it and nothing has to be waited for. */
  here(callId: string): CallDriver | undefined {
    const driver = this.context.table.get(callId);
    return driver?.answers === true ? driver : undefined;
  }

  private async route(callId: string, command: DriverCommand, hint: DriverHint): Promise<DriverAnswer> {
    const { membership } = this.context;
    const { brokerId } = membership;
    if (hint.driver !== undefined && hint.driver !== brokerId && membership.isLive(hint.driver)) {
      const asked = await this.ask(hint.driver, callId, command);
      if (asked !== undefined && asked.kind !== "not_driver") {
        return asked;
      }
    }
    hint.driver = undefined;
    // Who says that it does not drive a call that names it has lost it.
    const disowned = new Set<string>();
    for (let tries = 0; tries < ROUTES_MAX; tries += 1) {
      const found = await this.find(callId);
      if (found === undefined) {
        throw new CallNotFound(callId);
      }
      const { driver } = found.known.record;
      const isSettled = isSettledState(found.known);
      // What is added to a settled call is added where it is remembered, or that broker would not show it.
      const mayAdd = command.op === "receipt" || command.op === "final_receipt";
      const isElsewhere = mayAdd && !disowned.has(driver) && membership.isLive(driver);
      if ((isSettled && !isElsewhere) || driver === brokerId) {
        const performed = await this.perform(isSettled ? found : this.attached(found), command);
        if (performed !== undefined) {
          hint.driver = isSettled ? undefined : brokerId;
          return performed;
        }
        continue;
      }
      if (!disowned.has(driver) && !membership.isGone(driver)) {
        const asked = await this.ask(driver, callId, command);
        if (asked !== undefined && asked.kind !== "not_driver") {
          hint.driver = driver;
          return asked;
        }
        if (asked !== undefined || isSettled) {
          disowned.add(driver);
          continue;
        }
        if (command.op === "view" || command.op === "events") {
          return this.context.performer(found, command);
        }
      }
      await this.adopt(found);
    }
    throw new Error(`call ${callId}: no driver answered ${ROUTES_MAX} times`);
  }

  /**
   * The runner on `session` says that it runs the grant, and the driver is here and knows no better: the short way of the
   * command `held`. False: nothing was done, and the command has to find out.
   */
  heardHere(callId: string, grantId: string, runner: RunnerRef, session: SessionRef): boolean {
    const driver = this.context.table.get(callId);
    if (driver?.drives !== true || this.adopting.has(driver) || !holds(driver.known, grantId)) {
      return false;
    }
    if (!concerns(driver, runner) || driver.known.grant.journalId !== runner.journalId) {
      return false;
    }
    driver.heard(session);
    return true;
  }

  /** The call as its log says, driven here or not; undefined: there is none. What is read is read after this was asked. */
  find(callId: string): Promise<CallDriver | undefined> {
    const known = this.context.table.get(callId);
    if (known !== undefined) {
      return known.created.then((exists) => (exists && known.answers ? known : this.read(callId)));
    }
    return this.read(callId);
  }

  /** Takes the call over and starts its work here; false: somebody else was first, or it is settled. */
  async adopt(driver: CallDriver): Promise<boolean> {
    const { table, membership, post } = this.context;
    const present = table.get(driver.callId);
    if (present !== undefined) {
      return present.created;
    }
    const from = driver.known.record.driver;
    this.adopting.add(driver);
    const adopting = driver.adopt();
    table.add(driver);
    let adopted = false;
    try {
      adopted = await adopting;
    } finally {
      this.adopting.delete(driver);
      if (!adopted && !driver.drives) {
        driver.abandon();
        table.remove(driver);
      }
    }
    if (adopted && from !== membership.brokerId && membership.isLive(from)) {
      // It lives and did not answer: it learns of this, or it would go on showing what it remembers.
      const command: DriverCommand = { op: "verify" };
      post
        .ask(from, "command", JSON.stringify({ callId: driver.callId, command }), () => !driver.drives)
        .catch((error: unknown) => this.context.log.warn("predecessor_not_told", { call_id: driver.callId, error: String(error) }));
    }
    return adopted;
  }

  /** Puts a call that names this broker, and that its memory does not have, back to work. */
  attached(found: CallDriver): CallDriver {
    const present = this.context.table.get(found.callId);
    if (present !== undefined) {
      return present;
    }
    this.context.table.add(found);
    found.takeUp();
    return found;
  }

  private read(callId: string): Promise<CallDriver | undefined> {
    const present = this.reads.get(callId);
    if (present !== undefined) {
      present.next ??= present.under.then(
        () => this.read(callId),
        () => this.read(callId),
      );
      return present.next;
    }
    const driver = new CallDriver(callId, this.context.driver());
    const under = driver.load().then((exists) => (exists ? driver : undefined));
    const read: Read = { under, next: undefined };
    this.reads.set(callId, read);
    const over = (): void => {
      this.reads.delete(callId);
    };
    under.then(over, over);
    return under;
  }

  private async present(callId: string): Promise<CallDriver | undefined> {
    const driver = this.context.table.get(callId);
    return driver !== undefined && (await driver.created) && driver.answers ? driver : undefined;
  }

  private async hereOnly(callId: string, command: DriverCommand): Promise<DriverAnswer> {
    const driver = await this.present(callId);
    return (driver === undefined ? undefined : await this.perform(driver, command)) ?? { kind: "not_driver" };
  }

  /** `undefined`: it lost the call to another broker before it stored anything. */
  private perform(driver: CallDriver, command: DriverCommand): Promise<DriverAnswer | undefined> {
    return this.context.performer(driver, command).catch((error: unknown) => {
      if (error instanceof NotDriver) {
        return undefined;
      }
      throw error;
    });
  }

  /** `undefined`: it did not answer in time, and may be replaced. */
  private async ask(brokerId: string, callId: string, command: DriverCommand): Promise<DriverAnswer | undefined> {
    const waitMs = command.op === "events" ? command.waitMs : 0;
    const asked: DriverCommand = command.op === "view" ? { op: "view" } : command;
    try {
      const answer = await this.context.bus.request(`broker.${brokerId}.command`, JSON.stringify({ callId, command: asked }), {
        timeoutMs: waitMs + this.context.driver().figures.driverAnswerMs,
      });
      return JSON.parse(answer) as DriverAnswer;
    } catch (error) {
      if (error instanceof BusError && error.code !== "too_large") {
        this.context.log.warn("driver_unanswered", { call_id: callId, driver: brokerId, op: command.op, code: error.code });
        return undefined;
      }
      throw error;
    }
  }
}
