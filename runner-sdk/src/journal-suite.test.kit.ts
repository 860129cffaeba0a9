/**
 * What every journal must do, whatever keeps it: scenarios without a test runner around them, so that they run in Node and, bundled,
 * in a page.
 */
import { type Clock, systemClock } from "./core/clock.js";
import type { JournalRecord, OpenJournal } from "./core/journal.js";

/** Where a journal of a scenario is: nothing there at first, and the same again after each close. */
export interface JournalPlace {
  open(clock: Clock): Promise<OpenJournal>;
}

export interface JournalScenario {
  readonly title: string;
  /** Rejects with what is wrong. */
  run(place: JournalPlace): Promise<void>;
}

const HOUR_MS = 3_600_000;
const at = Date.now();
const later = (ms: number): Clock => ({ ...systemClock, now: () => Date.now() + ms });

const granted = (id: string): JournalRecord => ({
  kind: "granted",
  callId: `call_${id}`,
  grantId: id,
  fence: 3,
  attempt: 2,
  tool: "work",
  version: "1",
  at,
});
const started = (id: string): JournalRecord => ({ kind: "started", grantId: id, at });
const acknowledged = (id: string): JournalRecord => ({ kind: "acknowledged", grantId: id, at });
const finished = (id: string, resultJson: string, kind: "succeeded" | "submitted" = "succeeded"): JournalRecord => ({
  kind: "finished",
  at,
  receipt: {
    callId: `call_${id}`,
    grantId: id,
    fence: 3,
    attempt: 2,
    digest: `digest of ${resultJson.length}`,
    startedAtUnixMs: 1,
    finishedAtUnixMs: 2,
    outcome: kind === "succeeded" ? { kind, resultJson } : { kind, handleJson: resultJson },
  },
});

const open = (journal: OpenJournal) => [...journal.view.unacknowledged()].map((entry) => `${entry.grantId} ${entry.phase}`);

function same(what: string, actual: unknown, expected: unknown): void {
  const [found, wanted] = [JSON.stringify(actual), JSON.stringify(expected)];
  if (found !== wanted) throw new Error(`${what}: expected ${wanted?.slice(0, 400)}, got ${found?.slice(0, 400)}`);
}

async function rejected(what: string, attempt: Promise<unknown>): Promise<string> {
  try {
    await attempt;
  } catch (error) {
    return (error as { readonly code?: string }).code ?? String(error);
  }
  throw new Error(`${what} did not reject`);
}

/** The scenarios. */
export const JOURNAL_SCENARIOS: readonly JournalScenario[] = [
  {
    title: "gives back after it was closed what was appended, in its order, and keeps its id (R2)",
    async run(place) {
      const first = await place.open(systemClock);
      for (const record of [granted("a"), started("a"), granted("b"), finished("b", '"ü\\n"')]) await first.append(record);
      await first.append({ kind: "refused", callId: "call_c", grantId: "c", fence: 9, neverStarted: true, at });
      first.note(acknowledged("c"));
      await first.close();
      const second = await place.open(systemClock);
      same("the id", second.journalId, first.journalId);
      same("what is open", open(second), ["a started", "b finished"]);
      same("whether its start is of this opening", second.view.get("a")?.startedHere, false);
      same("a receipt", second.view.get("b")?.receipt?.outcome, { kind: "succeeded", resultJson: '"ü\\n"' });
      same("a refused fence", second.view.refusedFence("call_c"), 9);
      await second.close();
    },
  },
  {
    title: "shows a record when it is durable, and a note at once (J2)",
    async run(place) {
      const journal = await place.open(systemClock);
      journal.note(granted("a"));
      same("the note", journal.view.get("a")?.phase, "granted");
      await journal.append(started("a"));
      same("the record", journal.view.get("a")?.phase, "started");
      same("whether its start is of this opening", journal.view.get("a")?.startedHere, true);
      await journal.close();
    },
  },
  {
    title: "keeps every one of many that come at once, and notes that were not waited for",
    async run(place) {
      const first = await place.open(systemClock);
      const ids = Array.from({ length: 300 }, (_, index) => `g${index}`);
      await Promise.all(ids.flatMap((id) => [first.append(granted(id)), first.append(finished(id, `"${id}"`))]));
      for (const id of ids.slice(0, 100)) first.note(acknowledged(id));
      await first.close();
      const second = await place.open(systemClock);
      same(
        "what is open",
        open(second),
        ids.slice(100).map((id) => `${id} finished`),
      );
      same("an acknowledged one", second.view.get("g0")?.acknowledged, true);
      await second.close();
    },
  },
  {
    title: "holds a result of 16 MiB, and text of every kind",
    async run(place) {
      const large = `"${"ö😀x\\u0000".repeat(1_398_101)}"`;
      const odd = JSON.stringify("\ud800 \udfff \u2028 \u0000 \ufeff 😀");
      const first = await place.open(systemClock);
      await first.append(finished("large", large));
      await first.append(finished("odd", odd));
      await first.close();
      const second = await place.open(systemClock);
      const texts = ["large", "odd"].map((id) => {
        const outcome = second.view.get(id)?.receipt?.outcome;
        return outcome?.kind === "succeeded" ? outcome.resultJson : "";
      });
      same("the large one's length", texts[0]?.length, large.length);
      if (texts[0] !== large) throw new Error("the large one is another text");
      same("the odd one", texts[1], odd);
      await second.close();
    },
  },
  {
    title: "forgets what was acknowledged a day ago, and nothing that was not (G5, J3)",
    async run(place) {
      const first = await place.open(systemClock);
      for (const id of ["a", "b"]) await first.append(finished(id, "1"));
      await first.append(started("a"));
      first.note(acknowledged("a"));
      await first.close();
      const soon = await place.open(later(23 * HOUR_MS));
      same("kept for a day", soon.view.get("a")?.acknowledged, true);
      await soon.close();
      const day = await place.open(later(25 * HOUR_MS));
      same("forgotten then", day.view.get("a"), undefined);
      same("what is open", open(day), ["b finished"]);
      await day.close();
      const again = await place.open(systemClock);
      same("forgotten for good", again.view.get("a"), undefined);
      await again.close();
    },
  },
  {
    title: "reports the final receipt of a submission anew",
    async run(place) {
      const first = await place.open(systemClock);
      await first.append(finished("a", '"handle"', "submitted"));
      first.note(acknowledged("a"));
      await first.append(finished("a", '"result"'));
      await first.close();
      const second = await place.open(systemClock);
      same("what is open", open(second), ["a finished"]);
      same("the outcome", second.view.get("a")?.receipt?.outcome.kind, "succeeded");
      await second.close();
    },
  },
  {
    title: "takes nothing after it was closed, and can be closed twice",
    async run(place) {
      const journal = await place.open(systemClock);
      const last = journal.append(finished("a", "1"));
      await Promise.all([journal.close(), journal.close(), last]);
      same("an append", await rejected("an append to a closed journal", journal.append(started("b"))), "journal_closed");
      journal.note(granted("c"));
      const again = await place.open(systemClock);
      same("what is open", open(again), ["a finished"]);
      await again.close();
    },
  },
];
