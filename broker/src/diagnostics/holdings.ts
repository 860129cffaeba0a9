/**
 * What a broker holds, counted when somebody scrapes: open calls, sessions, brokers, the ledger's state. Counting many calls
 * gives way to other work.
 */
import type { Registry } from "prom-client";
import { BINDING_KINDS } from "../domain/ports/catalog.js";
import type { Version } from "../domain/ports/ledger.js";
import type { OpenCallReading, Readings } from "../domain/ports/meter.js";
import { METRICS } from "./definitions.js";
import { expose, exposeValue, type Sample } from "./families.js";
import type { ToolBook, ToolNames } from "./tool-tallies.js";

/** Calls that are counted before the clock is looked at again. */
const CALLS_AT_ONCE = 512;

interface Picture {
  readonly readings: Readings;
  readonly indexed: Version | undefined;
  readonly open: ReadonlyMap<ToolNames, ReadonlyMap<string, number>>;
  /** Creation of the oldest open call, by state. */
  readonly oldest: ReadonlyMap<string, number>;
}

/** The gauges whose values are taken at once, and shown until they are taken again. */
export class Holdings {
  readonly #book: ToolBook;
  #picture: Picture | undefined;

  constructor(registry: Registry, book: ToolBook) {
    this.#book = book;
    const value = (of: (picture: Picture) => number | undefined) => () => (this.#picture === undefined ? undefined : of(this.#picture));
    const lines = (of: (picture: Picture) => Sample[]) => () => (this.#picture === undefined ? [] : of(this.#picture));
    expose(registry, METRICS.open, lines(openLines));
    expose(registry, METRICS.oldest, lines(oldestLines));
    expose(registry, METRICS.sessions, lines(sessionLines));
    expose(registry, METRICS.slots, lines(slotLines));
    exposeValue(
      registry,
      METRICS.brokers,
      value(({ readings }) => readings.liveBrokers),
    );
    exposeValue(
      registry,
      METRICS.ledgerSilent,
      value(({ readings }) => readings.ledgerSilentMs / 1_000),
    );
    exposeValue(
      registry,
      METRICS.ledgerAway,
      value(({ readings }) => Number(readings.ledgerAway)),
    );
    exposeValue(
      registry,
      METRICS.indexLag,
      value(({ readings, indexed }) => (indexed === undefined ? undefined : Math.max(0, readings.newestVersion - indexed))),
    );
  }

  /** Looks at what there is now, as the present reader of the tools may see it. `pause` is asked now and then whether to wait. */
  async take(readings: Readings, indexed: Version | undefined, pause: () => Promise<void> | undefined): Promise<void> {
    const open = new Map<ToolNames, Map<string, number>>();
    const oldest = new Map<string, number>();
    let counted = 0;
    for (const call of readings.openCalls) {
      this.#count(call, open, oldest);
      counted += 1;
      if (counted % CALLS_AT_ONCE === 0) {
        await pause();
      }
    }
    this.#picture = { readings, indexed, open, oldest };
  }

  #count(
    { state, application, toolset, tool, createdAtMs }: OpenCallReading,
    open: Map<ToolNames, Map<string, number>>,
    oldest: Map<string, number>,
  ): void {
    const names = this.#book.namesOf(application, toolset, tool);
    const states = open.get(names) ?? new Map<string, number>();
    open.set(names, states.set(state, (states.get(state) ?? 0) + 1));
    oldest.set(state, Math.min(oldest.get(state) ?? createdAtMs, createdAtMs));
  }
}

function openLines({ open }: Picture): Sample[] {
  return [...open].flatMap(([names, states]) => [...states].map(([state, value]) => ({ labels: { ...names, state }, value })));
}

function oldestLines({ oldest }: Picture): Sample[] {
  return [...oldest].map(([state, createdAtMs]) => ({ labels: { state }, value: Math.max(0, Date.now() - createdAtMs) / 1_000 }));
}

function sessionLines({ readings }: Picture): Sample[] {
  const found = new Map<string, Map<string, number>>();
  for (const { transport, bindingKind } of readings.sessions) {
    const kinds = found.get(transport) ?? new Map<string, number>();
    found.set(transport, kinds.set(bindingKind, (kinds.get(bindingKind) ?? 0) + 1));
  }
  return [...found].flatMap(([transport, kinds]) =>
    [...kinds].map(([kind, value]) => ({ labels: { transport, binding_kind: kind }, value })),
  );
}

function slotLines({ readings }: Picture): Sample[] {
  const sessions = [...readings.sessions];
  return BINDING_KINDS.flatMap((kind) => {
    const ofKind = sessions.filter(({ bindingKind }) => bindingKind === kind);
    const used = ofKind.reduce((sum, { slotsInUse }) => sum + slotsInUse, 0);
    const free = ofKind.reduce((sum, { slots, slotsInUse }) => sum + Math.max(0, slots - slotsInUse), 0);
    return ofKind.length === 0
      ? []
      : [
          { labels: { binding_kind: kind, use: "used" }, value: used },
          { labels: { binding_kind: kind, use: "free" }, value: free },
        ];
  });
}
