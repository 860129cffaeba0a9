/** The part of the ledger suite in which writers race for one place (L1, L2). */
import { describe, expect, it } from "vitest";
import type { AppendOutcome, Ledger, NewEntry, Version } from "../../domain/ports/ledger.js";
import { collect, type DescribeLedgerOptions, entry, freshId, isLongRun, type LedgerHarness } from "./ledger-harness.js";

const WRITERS = 12;
/** Brokers among which the writers are spread when the store can be shared. */
const BROKERS = 3;

interface Attempt {
  readonly ledger: Ledger;
  readonly entry: NewEntry;
  readonly outcome: AppendOutcome;
}

/** Twelve writers at one place. A winner whose first acknowledgement was lost learns it as a duplicate. */
async function race(ledgers: readonly Ledger[], callId: string, expected: Version, label: string): Promise<Attempt[]> {
  return Promise.all(
    Array.from({ length: WRITERS }, async (_, index) => {
      const ledger = ledgers[index % ledgers.length] as Ledger;
      const mine = entry(`${label} ${index}`, expected === 0 ? "opens" : "none");
      return { ledger, entry: mine, outcome: await ledger.append(callId, expected, mine) };
    }),
  );
}

/** Exactly one won; all others know its version; the ledger holds what the winner wrote. Returns the version. */
async function expectOneWinner(attempts: readonly Attempt[], callId: string, expected: Version): Promise<Version> {
  const winners = attempts.filter(({ outcome }) => outcome.kind !== "conflict");
  expect(winners.map(({ outcome }) => outcome)).toHaveLength(1);
  const [winner] = winners as [Attempt];
  const version = winner.outcome.kind === "conflict" ? 0 : winner.outcome.version;
  for (const { outcome } of attempts) if (outcome.kind === "conflict") expect(outcome.current).toBe(version);
  const stored = await collect(winner.ledger.read(callId, expected + 1));
  expect(stored.map(({ entryId, previous }) => ({ entryId, previous }))).toEqual([{ entryId: winner.entry.entryId, previous: expected }]);
  return version;
}

/** Registers the races. */
export function describeRaces(store: () => LedgerHarness, opened: () => Promise<Ledger>, options: DescribeLedgerOptions): void {
  const rounds = (options.rounds ?? 40) * (isLongRun() ? 10 : 1);
  const ledgersOf = async (): Promise<Ledger[]> => {
    const ledgers = [await opened()];
    while (store().shared && ledgers.length < BROKERS) ledgers.push(await opened());
    return ledgers;
  };

  describe(`twelve writers at one place, ${rounds} rounds`, () => {
    it("have exactly one winner at expected 0 (L1, L2)", async () => {
      const ledgers = await ledgersOf();
      for (let round = 0; round < rounds; round += 1) {
        const callId = freshId("call");
        const disturbed = options.disturb?.(round);
        await expectOneWinner(await race(ledgers, callId, 0, `round ${round}`), callId, 0);
        await disturbed;
      }
    });

    it("have exactly one winner at expected n, and their repeats change nothing (L1, L2)", async () => {
      const ledgers = await ledgersOf();
      const callId = freshId("call");
      let last: Version = 0;
      for (let round = 0; round < rounds; round += 1) {
        const disturbed = options.disturb?.(round);
        const attempts = await race(ledgers, callId, last, `round ${round}`);
        const version = await expectOneWinner(attempts, callId, last);
        const repeats = await Promise.all(attempts.map(({ ledger, entry: mine }) => ledger.append(callId, last, mine)));
        repeats.forEach((repeat, index) => {
          const won = attempts[index]?.outcome.kind !== "conflict";
          expect(repeat).toEqual(won ? { kind: "duplicate", version } : { kind: "conflict", current: version });
        });
        last = version;
        await disturbed;
      }
      const [reader] = ledgers as [Ledger];
      expect(await collect(reader.read(callId))).toHaveLength(rounds);
    });
  });
}
