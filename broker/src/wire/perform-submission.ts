/**
 * Carries out what is said of submitted calls at their driver.
 *
 * Invariants: what is told is stored first; a refusal is no older than the log: a driver looks before it refuses, since its
 * picture may be that of a call which another broker took over.
 */
import { isSettledState } from "../domain/call/call-state.js";
import { decideFinal, decideUpdate, settledOtherwise } from "../domain/call/decide-submission.js";
import { eventView } from "../domain/call/view.js";
import { isoTime } from "../domain/iso-time.js";
import type { CallDriver } from "./call-driver.js";
import type { BindingRef, DriverAnswer, DriverCommand } from "./commands.js";
import { type Decision, type DriverContext, NotDriver } from "./driver-context.js";

type UpdateCommand = Extract<DriverCommand, { op: "update" }>;
type FinalCommand = Extract<DriverCommand, { op: "final_receipt" }>;

/** I8: is the call one that the holder of this key may know of? */
export function isOfBinding(driver: CallDriver, key: BindingRef): boolean {
  const { application, binding } = driver.known.record.request;
  return application === key.application && (binding === key.binding || key.binding === "*");
}

/** Stores the update, or finds it stored. */
export function performUpdate(driver: CallDriver, command: UpdateCommand, context: DriverContext): Promise<DriverAnswer> {
  const { id } = command.update;
  return looked(driver, () =>
    driver.decide((state): Decision<() => DriverAnswer> => {
      const decision = decideUpdate(state, command.update, context.clock.now());
      return decision.kind === "refused"
        ? { answer: () => ({ kind: "refused", code: decision.code, message: decision.message }) }
        : { entry: decision.kind === "append" ? decision.entry : undefined, answer: () => updated(driver, id) };
    }),
  );
}

/** Settles the call by a receipt that names no grant, or finds that it did. */
export async function performFinal(driver: CallDriver, command: FinalCommand, context: DriverContext): Promise<DriverAnswer> {
  const { receipt, fence } = command;
  const { clock, ids, ledger } = context;
  const value = receipt.value;
  const isChecked = receipt.outcome === "succeeded" && value !== null && !driver.takesAnyResult && !isSettledState(driver.known);
  const resultFaults = isChecked
    ? await context.resultFaults(driver.known.record.request, value.kind === "inline" ? value.json : await ledger.blobs.get(value.name))
    : [];
  return looked(driver, () =>
    driver.decide((state): Decision<() => DriverAnswer> => {
      const decision = decideFinal(state, receipt, fence, { nowMs: clock.now(), random: ids.random(), resultFaults });
      switch (decision.kind) {
        case "refused":
          return { answer: () => ({ kind: "refused", code: decision.code, message: decision.message }) };
        case "stored":
          return { answer: () => settled(driver) };
        case "append":
          return {
            entry: decision.entry,
            answer: decision.refused
              ? () => ({ kind: "refused", code: "receipt_conflict", message: settledOtherwise(driver.known) })
              : () => settled(driver),
          };
      }
    }),
  );
}

async function looked(driver: CallDriver, decide: () => Promise<() => DriverAnswer>): Promise<DriverAnswer> {
  const first = (await decide())();
  if (first.kind !== "refused" || isSettledState(driver.known)) {
    return first;
  }
  await driver.verify();
  if (!driver.answers) {
    throw new NotDriver(driver.callId);
  }
  return (await decide())();
}

function updated(driver: CallDriver, updateId: string): DriverAnswer {
  const seq = driver.known.record.updates.find(({ id }) => id === updateId)?.seq;
  const event = driver.events.find((each) => each.seq === seq);
  if (event === undefined) {
    throw new Error(`call ${driver.callId} has lost an update that it stored`);
  }
  return { kind: "updated", event: eventView(driver.callId, event) };
}

function settled(driver: CallDriver): DriverAnswer {
  const { known } = driver;
  if (!isSettledState(known) || known.settlement.receipt === null) {
    throw new Error(`call ${driver.callId} is ${known.kind} after its final receipt`);
  }
  const { outcome, digest } = known.settlement.receipt;
  return {
    kind: "settled",
    receipt: { type: "receipt", call_id: driver.callId, outcome, digest, state: known.kind, settled_at: isoTime(known.settlement.atMs) },
  };
}
