/**
 * Brings a simulated runner's receipts to its broker: each when it is journaled, again in every session, and again when one
 * stays unanswered. An acknowledgement names the grant, and is of the oldest receipt of it that was sent and not answered.
 */
import type { Receipt, RunnerFrame } from "@toolrunner/proto";
import type { Link } from "./sim-execution.test.kit.js";
import type { SimJournal } from "./sim-journal.test.kit.js";

export class SimDelivery {
  constructor(
    private readonly journal: SimJournal,
    private readonly now: () => number,
    private readonly send: (link: Link, frame: RunnerFrame["frame"]) => void,
  ) {}

  deliver(link: Link, receipt: Receipt): void {
    const sent = link.receiptsSent.get(receipt.grantId) ?? { digests: [], at: 0 };
    link.receiptsSent.set(receipt.grantId, { digests: [...sent.digests, receipt.digest], at: this.now() });
    this.send(link, { $case: "receipt", value: receipt });
  }

  /** What the journal has that no broker acknowledged. */
  deliverAll(link: Link): void {
    for (const entry of this.journal.values()) {
      if (entry.receipt !== undefined && !entry.acknowledged) {
        this.deliver(link, entry.receipt);
      }
    }
  }

  deliverOverdue(link: Link): void {
    for (const [grantId, { at }] of link.receiptsSent) {
      const entry = this.journal.get(grantId);
      if (entry?.receipt === undefined || entry.acknowledged) {
        link.receiptsSent.delete(grantId);
      } else if (this.now() - at > link.leaseMs) {
        this.deliver(link, entry.receipt);
      }
    }
  }

  acknowledged(link: Link, grantId: string): void {
    const digest = link.receiptsSent.get(grantId)?.digests.shift();
    if (digest !== undefined && this.journal.get(grantId)?.receipt?.digest === digest) {
      this.journal.mark(grantId);
    }
  }
}
