/**
 * Metrics whose numbers are kept outside prom-client and given to it at a scrape: its registry names, describes and writes them.
 *
 * Invariants: each metric is registered with one registry, which belongs to one broker; label values are never joined to keys, so
 * that no value, whatever it holds, is taken for another; a family holds a bounded number of series.
 */
import { Counter, Gauge, Histogram, type Registry } from "prom-client";
import type { MetricDefinition } from "./definitions.js";
import { Distribution, Tally } from "./tally.js";

/** One line of a scrape. */
export interface Sample {
  readonly labels: Record<string, string>;
  readonly value: number;
  /** Where it differs from the metric's: parts of a histogram. */
  readonly metricName?: string;
}

/** A metric of the registry whose samples come from `samples` when it is read. */
class Exposed extends Gauge<string> {
  /** Of the right type, and never counted in. */
  readonly #described: Counter<string> | Gauge<string> | Histogram<string>;
  readonly #samples: () => Sample[];

  constructor(registry: Registry, { name, help, type, labels }: MetricDefinition, samples: () => Sample[]) {
    const described = { name, help, labelNames: labels, registers: [] };
    super({ name, help, labelNames: labels, registers: [registry] });
    this.#samples = samples;
    this.#described =
      type === "counter"
        ? new Counter(described)
        : type === "histogram"
          ? new Histogram({ ...described, buckets: [1] })
          : new Gauge(described);
  }

  override async get(): ReturnType<Gauge<string>["get"]> {
    return { ...(await this.#described.get()), values: this.#samples() };
  }
}

/** Registers `definition`; `samples` is called at each scrape, and must not throw. */
export function expose(registry: Registry, definition: MetricDefinition, samples: () => Sample[]): void {
  new Exposed(registry, definition, samples);
}

/** Registers a metric without labels; `value` is called at each scrape, and undefined leaves the metric without a sample. */
export function exposeValue(registry: Registry, definition: MetricDefinition, value: () => number | undefined): void {
  expose(registry, definition, () => {
    const now = value();
    return now === undefined ? [] : [{ labels: {}, value: now }];
  });
}

/** Series of one family at most; more are counted together, with `other` for each label. Nothing that is known reaches it. */
const SERIES_MAX = 1_000;
const OTHER = "other";

interface Branch<T> {
  readonly below: Map<string, Branch<T>>;
  leaf: T | undefined;
}

/** The children of a metric with labels. */
export class Family<T> {
  readonly #root: Branch<T> = { below: new Map(), leaf: undefined };
  readonly #children: { readonly labels: Record<string, string>; readonly child: T }[] = [];
  readonly #make: () => T;
  readonly #labels: readonly string[];

  constructor(definition: MetricDefinition, make: () => T) {
    this.#labels = definition.labels;
    this.#make = make;
  }

  get children(): readonly { readonly labels: Record<string, string>; readonly child: T }[] {
    return this.#children;
  }

  /** The child with these values, as many as the metric has labels, in their order. Made when it is not there. */
  of(first: string, second?: string, third?: string): T {
    const one = this.#root.below.get(first);
    const two = second === undefined ? one : one?.below.get(second);
    const three = third === undefined ? two : two?.below.get(third);
    return three?.leaf ?? this.#made([first, second, third].filter((value) => value !== undefined));
  }

  #made(values: readonly string[]): T {
    if (this.#children.length >= SERIES_MAX && values.some((value) => value !== OTHER)) {
      const [first = OTHER, second, third] = values.map(() => OTHER);
      return this.of(first, second, third);
    }
    let branch = this.#root;
    for (const value of values) {
      const next = branch.below.get(value) ?? { below: new Map(), leaf: undefined };
      branch.below.set(value, next);
      branch = next;
    }
    branch.leaf ??= this.#added(values);
    return branch.leaf;
  }

  #added(values: readonly string[]): T {
    const child = this.#make();
    this.#children.push({ labels: Object.fromEntries(this.#labels.map((label, index) => [label, values[index] ?? ""])), child });
    return child;
  }
}

/** A counter with labels. */
export function tallies(registry: Registry, definition: MetricDefinition): Family<Tally> {
  const family = new Family(definition, () => new Tally());
  expose(registry, definition, () => family.children.map(({ labels, child }) => ({ labels, value: child.total })));
  return family;
}

/** A counter without labels: 0 from the start. */
export function tally(registry: Registry, definition: MetricDefinition): Tally {
  const only = new Tally();
  exposeValue(registry, definition, () => only.total);
  return only;
}

/** A histogram with labels. */
export function distributions(registry: Registry, definition: MetricDefinition): Family<Distribution> {
  const family = new Family(definition, () => new Distribution(definition.bounds ?? []));
  expose(registry, definition, () => family.children.flatMap(({ labels, child }) => samplesOf(definition.name, labels, child)));
  return family;
}

/** What a histogram shows of one series: cumulated buckets, sum and count. */
export function samplesOf(name: string, labels: Record<string, string>, { bounds, counts, sum }: Distribution): Sample[] {
  const samples: Sample[] = [];
  let below = 0;
  for (const [index, bound] of [...bounds.map(String), "+Inf"].entries()) {
    below += counts[index] ?? 0;
    samples.push({ metricName: `${name}_bucket`, labels: { ...labels, le: bound }, value: below });
  }
  samples.push({ metricName: `${name}_sum`, labels, value: sum }, { metricName: `${name}_count`, labels, value: below });
  return samples;
}
