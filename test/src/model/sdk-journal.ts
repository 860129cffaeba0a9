/**
 * A journal of the runner SDK in virtual time. It outlives the processes of its runner, as a file does.
 *
 * Invariants: what `append` resolved for is kept; what was appended when the process died is kept or not; what was only noted
 * goes with the process unless something was appended after it. The picture is the SDK's own.
 */
import { type Journal, type JournalRecord, memoryJournal, type OpenJournal } from "@toolrunner/runner-sdk";
import type { SimProcess } from "./simulation.js";

export class SdkJournal {
  private records: JournalRecord[] = [];
  private number = 1;
  private view: OpenJournal["view"] | undefined;

  constructor(private readonly name: string) {}

  /** Its records are gone, and a new one is in its place. */
  lose(): void {
    this.records = [];
    this.number += 1;
    this.view = undefined;
  }

  get id(): string {
    return `jrn_${this.name}_${this.number}`;
  }

  /** Is a record like this kept? */
  holds(is: (record: JournalRecord) => boolean): boolean {
    return this.records.some(is);
  }

  /** Receipts that no broker acknowledged, and starts whose end nobody asked about: one that was asked about is refused. */
  get owed(): number {
    return [...(this.view?.unacknowledged() ?? [])].filter(
      ({ phase, refused }) => phase === "finished" || (phase === "started" && !refused),
    ).length;
  }

  /** Calls that ended with a handle and have no final outcome yet. */
  submissions(): readonly string[] {
    const open = new Set<string>();
    for (const record of this.records) {
      if (record.kind === "finished") {
        const { callId, outcome } = record.receipt;
        if (outcome.kind === "submitted") open.add(callId);
        else open.delete(callId);
      }
    }
    return [...open];
  }

  /** The journal as the runner in `process` opens it. */
  for(process: SimProcess): Journal {
    return { kind: "simulated", durable: true, open: ({ clock }) => this.open(process, clock) };
  }

  private async open(process: SimProcess, clock: Parameters<Journal["open"]>[0]["clock"]): Promise<OpenJournal> {
    const { number, id } = this;
    const memory = memoryJournal();
    const earlier = await memory.open({ clock });
    for (const record of this.records) await earlier.append(record);
    await earlier.close();
    const picture = await memory.open({ clock });
    this.view = picture.view;
    let noted: JournalRecord[] = [];
    let last: Promise<void> = Promise.resolve();
    const keep = (records: readonly JournalRecord[]): void => {
      // Nobody writes to a journal that was lost.
      if (this.number === number) this.records.push(...records);
    };
    return {
      journalId: id,
      view: picture.view,
      append: (record) => {
        const batch = [...noted, record];
        noted = [];
        const written = last.then(async () => {
          await process.world.sleep(process.random.between(0.1, 4));
          if (!process.dead || process.random.chance(0.5)) keep(batch);
          // A process that is dead learns nothing any more.
          await process.turn(0);
          await picture.append(record);
        });
        last = written.catch(() => undefined);
        return written;
      },
      note: (record) => {
        picture.note(record);
        noted.push(record);
      },
      close: () => picture.close(),
    };
  }
}
