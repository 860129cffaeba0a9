/**
 * What a runner does when its place is put away, as a page is that closes, freezes or goes into a browser's back/forward cache, and
 * when it is there again.
 *
 * Invariants (R4, R5, G4):
 * - what has not begun is given back and will not begin; receipts that are not acknowledged go out in a request that outlives the page,
 *   with those whose records are being written: the only ones that are ever sent before they are known to be durable;
 * - the journal is given back only when nothing runs: who takes it over may take its starts for those of a process that is gone;
 * - no session is made before the place is there and the journal is held again (G2).
 * Nothing relies on any of it: what was promised is in the journal before.
 */
import type { Adoption } from "./adoption.js";
import { messageOf } from "./errors.js";
import { flushBody } from "./flush-body.js";
import type { GrantDesk } from "./grant-desk.js";
import type { JournalGate } from "./journal-gate.js";
import type { EventLog } from "./log.js";
import type { Receipt } from "./messages.js";
import type { Place } from "./place.js";
import type { Session } from "./session.js";
import type { Transport } from "./transport.js";

export interface AbsenceOptions {
  readonly transport: Transport;
  readonly gate: JournalGate;
  readonly desk: GrantDesk;
  readonly log: EventLog;
  readonly adoption: Adoption;
  readonly session: () => Session | null;
  /** Who sends the last request; null before anybody was admitted. */
  readonly sender: () => {
    readonly credential: string;
    readonly binding: string;
    readonly subject: string;
    readonly runnerId: string;
  } | null;
}

/** Watches the place for one runner; does nothing where the transport has none. */
export class Absence {
  readonly #offs: (() => void)[] = [];
  #visibility: string;

  constructor(private readonly options: AbsenceOptions) {
    const { place } = options.transport;
    this.#visibility = place?.facts().visibility ?? "unknown";
    if (place === undefined) return;
    this.#offs.push(
      place.watch(() => this.#changed(place)),
      place.onLeave(() => this.#leave()),
      place.onWake(() => this.options.session()?.probe()),
    );
  }

  /** Resolves when a session may be made. @throws ConnectError when the signal aborts, JournalError when the journal is not to be had. */
  async over(signal: AbortSignal): Promise<void> {
    await this.options.transport.place?.present(signal);
    await this.options.gate.resume();
  }

  /** Calls back when it is worth dialling again at once. */
  onWake(listener: () => void): () => void {
    return this.options.transport.place?.onWake(listener) ?? (() => {});
  }

  stop(): void {
    for (const off of this.#offs.splice(0)) off();
  }

  #changed(place: Place): void {
    const { visibility } = place.facts();
    const hides = visibility === "hidden" && this.#visibility !== "hidden";
    this.#visibility = visibility;
    this.options.session()?.tellInstance();
    // The last that a page on a phone may ever hear.
    if (hides) this.#flush(durableReceipts(this.options.gate));
  }

  #leave(): void {
    const { desk, gate, log, session, adoption } = this.options;
    void adoption.stop();
    const isIdle = desk.handBack("the page is left");
    // A tool that leads to another page ends as its page does: its record is being written, and nobody will be here when it is. Known
    // to the broker and not to the journal, an outcome is at worst reported as unknown for a call that has settled, which changes nothing.
    this.#flush([...durableReceipts(gate), ...desk.unwritten()]);
    session()?.close(4501, "the page is left");
    if (isIdle) gate.suspend();
    log.info("page_left", { journal_kept: !isIdle });
  }

  #flush(receipts: Iterable<Receipt>): void {
    const { transport, log, sender } = this.options;
    const from = sender();
    if (transport.flush === undefined || from === null) return;
    try {
      const flush = flushBody(from, receipts);
      if (flush === null) return;
      transport.flush(flush.body);
      log.info("receipts_flushed", { count: flush.count });
    } catch (error) {
      log.warn("receipts_not_flushed", { message: messageOf(error) });
    }
  }
}

function* durableReceipts(gate: JournalGate): Iterable<Receipt> {
  for (const { receipt } of gate.view.unacknowledged()) if (receipt !== null) yield receipt;
}
