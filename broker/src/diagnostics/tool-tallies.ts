/**
 * What is counted for each tool. Only tools with calls that were accepted are here, so all of them were in the catalog then.
 *
 * Invariants: {@link TOOLS_MAX} tools are counted apart, those that come later together; a reader is told the names of its own
 * application's tools only (A2), the numbers of the others come together under `other`.
 */
import type { Registry } from "prom-client";
import { METRICS } from "./definitions.js";
import { expose, type Sample, samplesOf } from "./families.js";
import { CALL_BOUNDS, Distribution, Tally } from "./tally.js";

/** Tools with series of their own, over all applications. Each takes up to some 80 lines of a scrape. */
export const TOOLS_MAX = 100;
/** Stands for both names of a tool that is not shown by them. */
export const OTHER = "other";

/** The numbers of one tool, or of those that come together. */
export class ToolTallies {
  readonly accepted = new Tally();
  readonly attempts = new Tally();
  readonly lateReceipts = new Tally();
  readonly reconciliationsOpened = new Tally();
  readonly settled = new Map<string, Tally>();
  readonly retries = new Map<string, Tally>();
  readonly leasesLost = new Map<string, Tally>();
  readonly wait = new Distribution(CALL_BOUNDS);
  readonly run = new Distribution(CALL_BOUNDS);
  readonly total = new Distribution(CALL_BOUNDS);
}

/** Adds one to what `label` names; made when it is not there. */
export function addTo(tallies: Map<string, Tally>, label: string): void {
  const known = tallies.get(label);
  if (known !== undefined) {
    known.add();
    return;
  }
  const made = new Tally();
  made.add();
  tallies.set(label, made);
}

/** Names of a tool as a reader sees them. */
export interface ToolNames {
  readonly toolset: string;
  readonly tool: string;
}

const HIDDEN: ToolNames = { toolset: OTHER, tool: OTHER };

interface KnownTool {
  readonly application: string;
  readonly names: ToolNames;
  readonly tallies: ToolTallies;
}

/** Where the numbers of tools are kept. */
export class ToolBook {
  readonly #byApplication = new Map<string, Map<string, Map<string, KnownTool>>>();
  readonly #tools: KnownTool[] = [];
  readonly #others = new ToolTallies();
  #reader: string | undefined;

  constructor(registry: Registry) {
    const count = (
      definition: (typeof METRICS)["accepted" | "attempts" | "lateReceipts" | "reconciliationsOpened"],
      of: (tool: ToolTallies) => Tally,
    ) =>
      expose(registry, definition, () =>
        this.#shown((names, tools) => [{ labels: { ...names }, value: tools.reduce((sum, tool) => sum + of(tool).total, 0) }]),
      );
    const countBy = (
      definition: (typeof METRICS)["settled" | "retries" | "leasesLost"],
      of: (tool: ToolTallies) => ReadonlyMap<string, Tally>,
    ) => {
      const label = definition.labels[2];
      expose(registry, definition, () =>
        this.#shown((names, tools) => {
          const sums = new Map<string, number>();
          for (const [value, { total }] of tools.flatMap((tool) => [...of(tool)])) {
            sums.set(value, (sums.get(value) ?? 0) + total);
          }
          return [...sums].map(([value, sum]) => ({ labels: { ...names, [label]: value }, value: sum }));
        }),
      );
    };
    const spread = (definition: (typeof METRICS)["wait" | "run" | "total"], of: (tool: ToolTallies) => Distribution) =>
      expose(registry, definition, () => this.#shown((names, tools) => samplesOf(definition.name, { ...names }, summed(tools.map(of)))));
    count(METRICS.accepted, (tool) => tool.accepted);
    countBy(METRICS.settled, (tool) => tool.settled);
    spread(METRICS.wait, (tool) => tool.wait);
    spread(METRICS.run, (tool) => tool.run);
    spread(METRICS.total, (tool) => tool.total);
    count(METRICS.attempts, (tool) => tool.attempts);
    countBy(METRICS.retries, (tool) => tool.retries);
    countBy(METRICS.leasesLost, (tool) => tool.leasesLost);
    count(METRICS.lateReceipts, (tool) => tool.lateReceipts);
    count(METRICS.reconciliationsOpened, (tool) => tool.reconciliationsOpened);
  }

  /** The numbers to add a call of this tool to. */
  of(application: string, toolset: string, tool: string): ToolTallies {
    return this.#known(application, toolset, tool)?.tallies ?? this.#others;
  }

  /** The names by which the present reader sees a tool: the same object each time. */
  namesOf(application: string, toolset: string, tool: string): ToolNames {
    const known = application === this.#reader ? this.#known(application, toolset, tool) : undefined;
    return known === undefined || this.#hides(known) ? HIDDEN : known.names;
  }

  /** For whom samples are made from now on. */
  readBy(application: string): void {
    this.#reader = application;
  }

  /** Undefined: there are too many to be known by name. */
  #known(application: string, toolset: string, tool: string): KnownTool | undefined {
    return this.#byApplication.get(application)?.get(toolset)?.get(tool) ?? this.#added(application, toolset, tool);
  }

  #added(application: string, toolset: string, tool: string): KnownTool | undefined {
    if (this.#tools.length >= TOOLS_MAX) {
      return undefined;
    }
    const made: KnownTool = { application, names: { toolset, tool }, tallies: new ToolTallies() };
    this.#tools.push(made);
    inner(inner(this.#byApplication, application), toolset).set(tool, made);
    return made;
  }

  /** A tool that is really called `other` comes together with the others: no two lines name one series. */
  #hides({ application, names }: KnownTool): boolean {
    return application !== this.#reader || (names.toolset === OTHER && names.tool === OTHER);
  }

  /** Samples of each tool that the reader may know, and of all others together when there are any. */
  #shown(samples: (names: ToolNames, tools: readonly ToolTallies[]) => Sample[]): Sample[] {
    const others = this.#tools.filter((tool) => this.#hides(tool)).map(({ tallies }) => tallies);
    if (this.#tools.length >= TOOLS_MAX) {
      others.push(this.#others);
    }
    return [
      ...this.#tools.filter((tool) => !this.#hides(tool)).flatMap(({ names, tallies }) => samples(names, [tallies])),
      ...(others.length === 0 ? [] : samples(HIDDEN, others)),
    ];
  }
}

function inner<V>(outer: Map<string, Map<string, V>>, key: string): Map<string, V> {
  const found = outer.get(key) ?? new Map<string, V>();
  outer.set(key, found);
  return found;
}

function summed(all: readonly Distribution[]): Distribution {
  const [first, ...more] = all;
  if (first !== undefined && more.length === 0) {
    return first;
  }
  const sum = new Distribution(CALL_BOUNDS);
  for (const { counts, sum: seconds } of all) {
    for (const [index, count] of counts.entries()) {
      sum.counts[index] = (sum.counts[index] ?? 0) + count;
    }
    sum.sum += seconds;
  }
  return sum;
}
