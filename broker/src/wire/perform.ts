/** Carries one command out on a call's driver. */

import { callView, eventView, storedValueOf } from "../domain/call/view.js";
import { SETTLED_STATES } from "../domain/call-view.js";
import type { CallDriver } from "./call-driver.js";
import type { DriverAnswer, DriverCommand, RunnerRef } from "./commands.js";
import type { DriverContext } from "./driver-context.js";
import { inlineText } from "./frames.js";
import { storeText } from "./stored-text.js";

export type Performer = (driver: CallDriver, command: DriverCommand) => Promise<DriverAnswer>;

export interface PerformerContext {
  readonly driver: () => DriverContext;
  readonly modelText: (code: string, message: string) => string;
  readonly whyWaiting: (driver: CallDriver) => "runner" | "handler" | "capacity";
}

export function createPerformer(context: PerformerContext): Performer {
  async function viewOf(driver: CallDriver, answered: boolean): Promise<DriverAnswer> {
    const state = driver.known;
    const value = storedValueOf(state);
    const view = callView(state, {
      modelText: context.modelText,
      waitingFor: state.kind === "queued" && driver.drives ? context.whyWaiting(driver) : null,
      ...(value?.kind === "blob" ? { blobText: await context.driver().ledger.blobs.get(value.name) } : {}),
    });
    return { kind: "view", view, answered };
  }

  return async (driver, command) => {
    if ("runner" in command && !concerns(driver, command.runner)) {
      return { kind: "not_found" };
    }
    switch (command.op) {
      case "receipt":
        return { kind: "disposition", disposition: await driver.receipt(command.receipt) };
      case "decline":
        await driver.returned(command.grantId, command.reason, command.message);
        return { kind: "done" };
      case "started":
        driver.started(command.grantId, command.atMs);
        return { kind: "done" };
      case "progress":
        driver.progress(command.grantId, command.data);
        return { kind: "done" };
      case "cancel_answer":
        // A handler that stopped says so by its receipt.
        if (command.level !== "stopped") {
          await driver.cancelAnswered(command.grantId, command.level);
        }
        return { kind: "done" };
      case "held":
        return { kind: "held", keep: await driver.held(command) };
      case "cancel": {
        const outcome = await driver.cancel(command.mode, command.reason);
        return "refused" in outcome
          ? { kind: "refused", code: "not_cancellable", message: outcome.refused }
          : viewOf(driver, outcome.answered);
      }
      case "confirm":
        return (await driver.confirm(command.decision, command.by))
          ? viewOf(driver, true)
          : { kind: "refused", code: "not_awaiting_confirmation", message: `call ${driver.callId} is ${driver.known.kind}` };
      case "reconcile": {
        const value =
          command.resultJson === null
            ? null
            : await storeText(context.driver().ledger.blobs, context.driver().ids, driver.callId, inlineText(command.resultJson));
        return (await driver.reconcile({ outcome: command.outcome, value, by: command.by, note: command.note }))
          ? viewOf(driver, true)
          : { kind: "refused", code: "not_reconcilable", message: `call ${driver.callId} is ${driver.known.kind}` };
      }
      case "view":
        return viewOf(driver, true);
      case "events":
        return events(driver, command.afterSeq, command.waitMs, context.driver());
    }
  };
}

function concerns(driver: CallDriver, runner: RunnerRef): boolean {
  const { application, binding, bindingKind, subject } = driver.known.record.request;
  return application === runner.application && binding === runner.binding && (bindingKind === "backend" || subject === runner.subject);
}

async function events(driver: CallDriver, afterSeq: number, waitMs: number, context: DriverContext): Promise<DriverAnswer> {
  const after = () => driver.events.filter((event) => event.seq > afterSeq);
  const isOver = () => (SETTLED_STATES as readonly string[]).includes(driver.known.kind);
  if (after().length === 0 && !isOver() && waitMs > 0) {
    await changed(driver, waitMs, context, () => after().length > 0 || isOver() || !driver.drives);
  }
  return { kind: "events", events: after().map((event) => eventView(driver.callId, event)), settled: isOver(), state: driver.known.kind };
}

/** Resolves when `until` holds after a change of the driver, or after `waitMs`. */
export function changed(
  driver: CallDriver,
  waitMs: number,
  context: Pick<DriverContext, "timers">,
  until: () => boolean,
  signal?: AbortSignal,
): Promise<void> {
  return new Promise((resolve) => {
    const stop = driver.onChange(() => {
      if (until()) {
        done();
      }
    });
    const task = context.timers.after(waitMs, done);
    signal?.addEventListener("abort", done, { once: true });
    function done(): void {
      stop();
      task.cancel();
      signal?.removeEventListener("abort", done);
      resolve();
    }
    if (until() || signal?.aborted === true) {
      done();
    }
  });
}
