/**
 * What the holder of a binding's key says about its submitted calls, whichever gateway it comes through (X5).
 *
 * Invariants: a call of another application or binding is answered like one that does not exist (I8, A2); an answer follows the
 * append; a large result is stored only for a call that may take it.
 */
import { BrokerError } from "../domain/broker-error.js";
import { isSettledState, type StoredText } from "../domain/call/call-state.js";
import type { CallEventView } from "../domain/call-view.js";
import { RESULT_BYTES_MAX } from "../domain/limits.js";
import type { RunnerPrincipal } from "../domain/ports/access.js";
import type { CallDriver } from "./call-driver.js";
import { CallNotFound, type CallRouter } from "./call-router.js";
import type { BindingRef, DriverAnswer, DriverCommand } from "./commands.js";
import type { DriverContext } from "./driver-context.js";
import { finalOf, updateOf } from "./final-receipt.js";
import { inlineText } from "./frames.js";
import type { LedgerWatch } from "./ledger-watch.js";
import type { FinalReceiptBody, FinalReceiptView, SubmissionOperations, UpdateBody } from "./operations.js";
import { isOfBinding } from "./perform-submission.js";
import { storedOnce } from "./stored-once.js";

export class SubmissionService implements SubmissionOperations {
  constructor(
    private readonly context: {
      readonly driver: () => DriverContext;
      readonly router: Pick<CallRouter, "command" | "find">;
      readonly ledgerWatch: Pick<LedgerWatch, "guard">;
    },
  ) {}

  async update(principal: RunnerPrincipal, callId: string, body: UpdateBody): Promise<CallEventView> {
    const update = updateOf(body, this.context.driver().ids);
    await this.ofBinding(principal, callId);
    const answer = await this.command(callId, { op: "update", key: keyOf(principal), update });
    if (answer.kind !== "updated") {
      throw unexpected(callId, "update", answer);
    }
    return answer.event;
  }

  async settle(principal: RunnerPrincipal, callId: string, body: FinalReceiptBody): Promise<FinalReceiptView> {
    const { facts, json } = finalOf(body, principal.keyId);
    const driver = await this.ofBinding(principal, callId);
    const value = json === null ? null : await this.valueFor(driver, json);
    const receipt = { ...facts, value };
    const answer = await this.command(callId, { op: "final_receipt", key: keyOf(principal), receipt, fence: body.fence ?? null });
    if (answer.kind !== "settled") {
      throw unexpected(callId, "final_receipt", answer);
    }
    return answer.receipt;
  }

  private async ofBinding(principal: RunnerPrincipal, callId: string): Promise<CallDriver> {
    const { ledgerWatch, router } = this.context;
    const found = /^call_[a-z2-7]{26}$/.test(callId) ? await ledgerWatch.guard(router.find(callId)) : undefined;
    if (found === undefined || !isOfBinding(found, keyOf(principal))) {
      throw notFound();
    }
    return found;
  }

  private async valueFor(driver: CallDriver, json: string): Promise<StoredText | null> {
    const text = inlineText(json);
    if (text.bytes > RESULT_BYTES_MAX) {
      throw new BrokerError("result_over_limit", `result: ${text.bytes} bytes, over the limit of ${RESULT_BYTES_MAX} bytes`);
    }
    if (isSettledState(driver.known)) {
      // What comes now changes nothing, and its digest tells it from what was stored.
      return null;
    }
    return this.context.ledgerWatch.guard(storedOnce(this.context.driver().ledger.blobs, driver.callId, text));
  }

  private async command(callId: string, command: DriverCommand): Promise<DriverAnswer> {
    const { ledgerWatch, router } = this.context;
    const answer = await ledgerWatch.guard(router.command(callId, command)).catch((error: unknown) => {
      throw error instanceof CallNotFound ? notFound() : error;
    });
    if (answer.kind === "refused") {
      throw new BrokerError(answer.code, answer.message);
    }
    return answer;
  }
}

function keyOf({ application, binding }: RunnerPrincipal): BindingRef {
  return { application, binding };
}

function notFound(): BrokerError {
  return new BrokerError("not_found", "there is no call with this id");
}

function unexpected(callId: string, op: string, answer: DriverAnswer): Error {
  return new Error(`call ${callId}: ${op} was answered by ${answer.kind}`);
}
