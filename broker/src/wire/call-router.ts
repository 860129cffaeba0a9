/**
 * Brings a command to the driver of its call: here, on another broker, or, when that one is gone or does not answer,
 * here after this broker adopted the call. Compare-and-append makes every race of two adopters harmless.
 */
import { isSettledState } from "../domain/call/call-state.js";
import { type Bus, BusError, type Subscription } from "../domain/ports/bus.js";
import type { Log } from "../domain/ports/log.js";
import { CallDriver } from "./call-driver.js";
import type { DriverAnswer, DriverCommand } from "./commands.js";
import type { DriverContext } from "./driver-context.js";
import type { DriverTable } from "./driver-table.js";
import type { Membership } from "./membership.js";
import type { Performer } from "./perform.js";

const ROUTES_MAX = 10;

export class CallNotFound extends Error {
  override readonly name = "CallNotFound";
}

export class CallRouter {
  private endpoint: Subscription | undefined;
  private readonly loading = new Map<string, Promise<CallDriver | undefined>>();

  constructor(
    private readonly context: {
      readonly driver: () => DriverContext;
      readonly table: DriverTable;
      readonly membership: Membership;
      readonly bus: Bus;
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

  /** `hint`: the broker that drove the call when it was last asked. Rejects with {@link CallNotFound}. */
  async command(callId: string, command: DriverCommand, hint?: string): Promise<DriverAnswer> {
    const answer = await this.route(callId, command, hint);
    if (answer.kind === "not_found") {
      throw new CallNotFound(callId);
    }
    return answer;
  }

  private async route(callId: string, command: DriverCommand, hint?: string): Promise<DriverAnswer> {
    const here = await this.present(callId);
    if (here !== undefined) {
      return this.perform(here, command);
    }
    if (hint !== undefined && this.context.membership.isLive(hint)) {
      const answer = await this.ask(hint, callId, command);
      if (answer !== undefined && answer.kind !== "not_driver") {
        return answer;
      }
    }
    for (let tries = 0; tries < ROUTES_MAX; tries += 1) {
      const found = await this.find(callId);
      if (found === undefined) {
        throw new CallNotFound(callId);
      }
      if (found.drives || isSettledState(found.known)) {
        return this.perform(found, command);
      }
      const { driver } = found.known.record;
      if (this.context.membership.isLive(driver) && driver !== this.context.membership.brokerId) {
        const answer = await this.ask(driver, callId, command);
        if (answer !== undefined && answer.kind !== "not_driver") {
          return answer;
        }
        if (answer?.kind === "not_driver") {
          continue;
        }
      }
      await this.adopt(found);
    }
    throw new Error(`call ${callId}: no driver answered ${ROUTES_MAX} times`);
  }

  /** The call as its log says, driven here or not; undefined: there is none. Concurrent reads share one. */
  find(callId: string): Promise<CallDriver | undefined> {
    const known = this.context.table.get(callId);
    if (known !== undefined) {
      return known.created.then((exists) => (exists ? known : this.read(callId)));
    }
    return this.read(callId);
  }

  /** Takes the call over and starts its work here; false: somebody else was first, or it is settled. */
  async adopt(driver: CallDriver): Promise<boolean> {
    const present = this.context.table.get(driver.callId);
    if (present !== undefined) {
      return present.created;
    }
    const adopting = driver.adopt();
    this.context.table.add(driver);
    let adopted = false;
    try {
      adopted = await adopting;
    } finally {
      if (!adopted) {
        driver.abandon();
        this.context.table.remove(driver);
      }
    }
    return adopted;
  }

  private async read(callId: string): Promise<CallDriver | undefined> {
    let loading = this.loading.get(callId);
    if (loading === undefined) {
      const driver = new CallDriver(callId, this.context.driver());
      loading = driver.load().then((exists) => (exists ? driver : undefined));
      this.loading.set(callId, loading);
      loading.finally(() => this.loading.delete(callId)).catch(() => undefined);
    }
    return loading;
  }

  private async present(callId: string): Promise<CallDriver | undefined> {
    const driver = this.context.table.get(callId);
    if (driver === undefined || !(await driver.created)) {
      return undefined;
    }
    return driver.drives || isSettledState(driver.known) ? driver : undefined;
  }

  private async hereOnly(callId: string, command: DriverCommand): Promise<DriverAnswer> {
    const driver = await this.present(callId);
    return driver === undefined ? { kind: "not_driver" } : this.perform(driver, command);
  }

  private async perform(driver: CallDriver, command: DriverCommand): Promise<DriverAnswer> {
    return this.context.performer(driver, command);
  }

  /** `undefined`: it did not answer in time, and may be replaced. */
  private async ask(brokerId: string, callId: string, command: DriverCommand): Promise<DriverAnswer | undefined> {
    const waitMs = command.op === "events" ? command.waitMs : 0;
    try {
      const answer = await this.context.bus.request(`broker.${brokerId}.command`, JSON.stringify({ callId, command }), {
        timeoutMs: waitMs + this.context.driver().figures.driverAnswerMs,
      });
      return JSON.parse(answer) as DriverAnswer;
    } catch (error) {
      if (error instanceof BusError) {
        this.context.log.warn("driver_unanswered", { call_id: callId, driver: brokerId, op: command.op, code: error.code });
        return undefined;
      }
      throw error;
    }
  }
}
