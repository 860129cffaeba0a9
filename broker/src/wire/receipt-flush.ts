/**
 * Takes the receipts of a page that closes, without a session.
 *
 * Invariants: who sends them must be allowed to be that runner, by the same rules as in a hello (I8); a receipt has the same effect as
 * one in a frame, so the redelivery that follows on the next session is answered as a repeat (G5); nothing else about the runner is
 * taken from such a request, which may come late.
 */
import { BrokerError } from "../domain/broker-error.js";
import { ID_PATTERN } from "../domain/limits.js";
import type { ReceiptFactsRead } from "./frames.js";
import { admitRunner, type HandshakeContext, RUNNER_ID_PATTERN } from "./handshake.js";
import type { LedgerWatch } from "./ledger-watch.js";
import type { FlushedReceipt, FlushRequest, RunnerFlush } from "./operations.js";
import { type ReceiptAcceptance, type ReceiptBearer, readReceipt } from "./receipt-acceptance.js";
import type { RunnerAsks } from "./runner-asks.js";

export interface ReceiptFlushContext extends Omit<HandshakeContext, "registersBindings"> {
  readonly acceptance: ReceiptAcceptance;
  readonly asks: RunnerAsks;
  readonly ledgerWatch: Pick<LedgerWatch, "away">;
}

export class ReceiptFlush implements RunnerFlush {
  constructor(private readonly context: ReceiptFlushContext) {}

  async flush(request: FlushRequest): Promise<readonly FlushedReceipt[]> {
    const bearer = await this.bearerOf(request);
    if (this.context.ledgerWatch.away) {
      throw new BrokerError("ledger_away", "The broker cannot reach its ledger: the receipts are taken on the runner's next session.");
    }
    return Promise.all(
      request.receipts.map((receipt): FlushedReceipt | Promise<FlushedReceipt> => {
        const read = readReceipt(receipt, request.runnerId);
        return typeof read === "string" ? { kind: "refused", message: read } : this.take(bearer, receipt.callId, read);
      }),
    );
  }

  private async take(bearer: ReceiptBearer, callId: string, read: ReceiptFactsRead): Promise<FlushedReceipt> {
    try {
      return { kind: "taken", disposition: await this.context.acceptance.accept(bearer, callId, read, { driver: undefined }) };
    } catch (error) {
      this.context.asks.failedFor(bearer.runnerId, callId, "flush", error);
      return { kind: "failed", error };
    }
  }

  private async bearerOf({ credential, binding, subject, runnerId }: FlushRequest): Promise<ReceiptBearer> {
    const { authenticator, catalog } = this.context;
    const principal = await authenticator.runner(credential);
    if (principal === undefined) {
      throw new BrokerError("key_invalid", "The credential is unknown, revoked, or not a runner key.");
    }
    const refused = (path: string, expected: string) =>
      new BrokerError("body_invalid", `The body's ${path.slice(1)} must be ${expected}.`, {
        details: [{ path, expected, actual: "another text" }],
      });
    if (!ID_PATTERN.test(binding)) {
      throw refused("/binding", "an id of the form [a-z][a-z0-9_-]{0,63}");
    }
    if (!RUNNER_ID_PATTERN.test(runnerId)) {
      throw refused("/runner_id", "1 to 64 of A-Z a-z 0-9 _ -");
    }
    // No binding is registered for it: what was never called has no receipts.
    const admitted = await admitRunner(principal, { binding, subject }, { origin: undefined }, { catalog, registersBindings: false });
    if (admitted.kind === "refused") {
      throw new BrokerError("not_found", `There is nothing here for this credential: ${admitted.message}.`);
    }
    return { runner: { application: principal.application, binding, subject: admitted.subject, journalId: "" }, runnerId };
  }
}
