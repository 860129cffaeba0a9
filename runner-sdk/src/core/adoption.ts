/**
 * Serves journals whose runners are gone: delivers their receipts, and answers for what they were granted.
 *
 * Each orphan has a session of its own, with its own journal id: to its broker it is the runner that was gone, come back without
 * anything to offer. Invariants (G1, R5):
 * - an orphan's session claims nothing, and speaks only for the journal that is held;
 * - it has the id of the runner that was gone where nobody else can have that, so that it is asked what only that runner can say;
 * - a journal is deleted when everything in it is acknowledged, and nothing can come that it would have to answer for; one with an
 *   outcome that nobody knows is kept, and served, until its call is over.
 */
import { type Clock, elapsedMs, type Instant, instant } from "./clock.js";
import { CredentialKeeper } from "./credential-keeper.js";
import type { Sha256 } from "./digest.js";
import { messageOf } from "./errors.js";
import { GrantDesk } from "./grant-desk.js";
import type { HandlerTable } from "./handlers.js";
import { randomId } from "./ids.js";
import type { Journal, JournalOwner, OrphanJournal } from "./journal.js";
import { createJournalGate } from "./journal-gate.js";
import type { EventLog } from "./log.js";
import type { HeldRunnerId } from "./place.js";
import { type Session, startSession } from "./session.js";
import type { SubmissionEnd } from "./submission-signals.js";
import { supervise } from "./supervisor.js";
import type { Transport } from "./transport.js";

/** Orphans whose receipts are delivered at once. */
const DELIVERING_MAX = 4;
/** Orphans that have a session at once; most of them only because they may still be asked something. */
const SERVED_MAX = 32;
/** From so many on, an orphan is given back whose calls wait for a person, which may take days: the next load takes it up again. */
const CROWDED = 16;
const LOOK_AGAIN_MS = 1_000;

export interface AdoptionOptions {
  readonly transport: Transport;
  readonly journal: Journal;
  readonly handlers: HandlerTable;
  /** Of the runner that adopts: so many `reconcile` handlers look at once for each orphan. */
  readonly concurrency: number;
  readonly clock: Clock;
  readonly random: () => number;
  readonly log: EventLog;
  readonly sha256: Sha256;
  readonly sdkVersion: string;
  readonly owner: () => JournalOwner;
  readonly credential: () => Promise<string>;
  /** Told of what an adopted journal submitted, too. */
  readonly onSubmissionEnded: ((end: SubmissionEnd) => void) | undefined;
}

/** Looks after orphans for one runner, from `start` to `stop`, again and again. */
export class Adoption {
  #ending: AbortController | null = null;
  readonly #serving = new Set<Promise<void>>();
  readonly #delivering = new Set<Promise<void>>();

  constructor(private readonly options: AdoptionOptions) {}

  /** Idempotent. Does nothing for a journal that cannot become an orphan. */
  start(): void {
    if (this.#ending !== null || this.options.journal.orphans === undefined) return;
    this.#ending = new AbortController();
    void this.#run(this.#ending.signal);
  }

  /** Gives every orphan back; that is under way when it returns. Resolves when it is done. Idempotent. */
  async stop(): Promise<void> {
    this.#ending?.abort();
    this.#ending = null;
    await Promise.all(this.#serving);
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { journal, clock, log, owner } = this.options;
    try {
      for await (const orphan of journal.orphans?.({ clock, log, owner: owner(), signal }) ?? []) {
        let delivered: () => void = () => {};
        const delivering = new Promise<void>((resolve) => {
          delivered = resolve;
        });
        const serving = this.#serve(orphan, signal, () => delivered());
        keepWhile(this.#delivering, delivering);
        keepWhile(
          this.#serving,
          serving.finally(() => delivered()),
        );
        await room(this.#delivering, DELIVERING_MAX);
        await room(this.#serving, SERVED_MAX);
        if (signal.aborted) return;
      }
    } catch (error) {
      log.warn("orphans_not_sought", { message: messageOf(error) });
    }
  }

  async #serve(orphan: OrphanJournal, signal: AbortSignal, delivered: () => void): Promise<void> {
    const { log, transport } = this.options;
    const { journal } = orphan;
    let held: HeldRunnerId | null = null;
    const release = () => {
      held?.release();
      void journal.close().catch((error: unknown) => log.error("journal_not_closed", { message: messageOf(error) }));
    };
    signal.addEventListener("abort", release);
    try {
      let isOver = isSettled(orphan);
      if (orphan.mayBeAsked || !isOver) {
        held = (await transport.place?.borrowRunnerId(orphan.runnerId)) ?? null;
        if (signal.aborted) return;
        log.info("journal_adopted", { runner_id: orphan.runnerId, open: [...journal.view.unacknowledged()].length });
        await this.#serveSession(orphan, held?.current ?? randomId("orphan"), signal, delivered);
        isOver = isSettled(orphan);
      }
      if (isOver && !signal.aborted) await orphan.destroy();
    } catch (error) {
      log.warn("orphan_not_served", { message: messageOf(error) });
    } finally {
      signal.removeEventListener("abort", release);
      release();
    }
  }

  async #serveSession(orphan: OrphanJournal, runnerId: string, signal: AbortSignal, delivered: () => void): Promise<void> {
    const { transport, clock, random, log, sha256, handlers, credential, sdkVersion, owner } = this.options;
    const { binding, subject } = owner();
    const done = new AbortController();
    const gate = createJournalGate(orphan.journal, {
      clock,
      random,
      log,
      onFault: () => {},
      reopen: () => Promise.resolve(orphan.journal),
    });
    const credentials = new CredentialKeeper({ source: credential, clock, log });
    let session: Session | null = null;
    let stay: { readonly from: Instant; readonly ms: number } | null = null;
    const end = () => {
      done.abort();
      session?.close(1000, "the journal is served");
    };
    const review = () => {
      if (stay === null || !desk.idle) return;
      delivered();
      // What had been granted and was never read may be asked about until its lease is over, and what ran until its call is.
      const isAsked = orphan.mayBeAsked && elapsedMs(clock, stay.from) < stay.ms;
      if (!isAsked && (isSettled(orphan) || this.#serving.size >= CROWDED)) end();
    };
    const desk = new GrantDesk({
      clock,
      log,
      journal: gate,
      handlers,
      sha256,
      authorize: undefined,
      random,
      concurrency: 0,
      reconcileConcurrency: this.options.concurrency,
      onProgressed: review,
      onSubmissionEnded: this.options.onSubmissionEnded,
    });
    let timer: { cancel(): void } | null = null;
    const lookAgain = () => {
      review();
      if (!done.signal.aborted) timer = clock.schedule(LOOK_AGAIN_MS, lookAgain);
    };
    signal.addEventListener("abort", end);
    if (signal.aborted) end();
    timer = clock.schedule(LOOK_AGAIN_MS, lookAgain);
    try {
      await supervise({
        transport,
        credential: () => credentials.current(),
        clock,
        random,
        log,
        signal: done.signal,
        serve(channel, given) {
          session = startSession({
            channel,
            clock,
            log,
            desk,
            handlers,
            hello: {
              sdkVersion,
              runnerId,
              binding,
              subject,
              credential: transport.carriesCredential ? "" : given,
              journalId: gate.journalId,
              instance: () => ({ visibility: "unknown", focused: false, labels: {} }),
            },
            credential: given,
            credentials,
            onWelcome({ leaseMs }) {
              stay ??= { from: instant(clock), ms: 2 * leaseMs };
            },
            onBrokerDrain: () => session?.close(4501, "the broker drains"),
          });
          if (done.signal.aborted) session.close(1000, "the journal is served");
          return session.ended;
        },
        onConnecting: () => {},
        onRetrying: () => {},
      });
    } finally {
      signal.removeEventListener("abort", end);
      timer?.cancel();
      desk.close();
    }
  }
}

function isSettled({ journal }: OrphanJournal): boolean {
  for (const _entry of journal.view.unacknowledged()) return false;
  return true;
}

function keepWhile(set: Set<Promise<void>>, pending: Promise<void>): void {
  const kept = pending.finally(() => set.delete(kept));
  set.add(kept);
}

async function room(set: ReadonlySet<Promise<void>>, max: number): Promise<void> {
  while (set.size >= max) await Promise.race(set);
}
