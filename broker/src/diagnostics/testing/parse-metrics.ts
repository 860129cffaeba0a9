/** Reads Prometheus' text format as strictly as its server does, and a little more: for tests of what a broker shows. */

/** One line with a value. */
export interface ParsedSample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** A metric with its lines. */
export interface ParsedMetric {
  readonly name: string;
  readonly help: string;
  readonly type: string;
  readonly samples: readonly ParsedSample[];
}

/** What a scrape holds. */
export interface ParsedMetrics {
  readonly metrics: ReadonlyMap<string, ParsedMetric>;
  /** Sum of all lines called `name` whose labels have these values; 0 when there is none. */
  sum(name: string, labels?: Readonly<Record<string, string>>): number;
}

const SAMPLE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? ([^\s"]+)$/s;
const LABEL = /^([a-zA-Z_]\w*)="((?:[^"\\\n]|\\[\\"n])*)"(,|$)/;
const PARTS = /_(?:bucket|sum|count)$/;

/** Throws on what is not the format: an unknown line, a repeated metric or series, a histogram that falls. */
export function parseMetrics(text: string): ParsedMetrics {
  const metrics = new Map<string, { name: string; help: string; type: string; samples: ParsedSample[] }>();
  const seen = new Set<string>();
  let current: { name: string; help: string; type: string; samples: ParsedSample[] } | undefined;
  if (!text.endsWith("\n")) throw new Error("the text does not end with a line feed");
  for (const line of text.split("\n")) {
    if (line === "") continue;
    const comment = /^# (HELP|TYPE) (\S+) (.+)$/.exec(line);
    if (comment !== null) {
      const [, kind, name = "", rest = ""] = comment;
      if (kind === "HELP") {
        if (metrics.has(name)) throw new Error(`${name} is there twice`);
        current = { name, help: rest, type: "", samples: [] };
        metrics.set(name, current);
      } else if (current?.name === name && current.type === "") {
        current.type = rest;
      } else {
        throw new Error(`TYPE without its HELP: ${line}`);
      }
      continue;
    }
    const sample = sampleIn(line);
    const base = current?.type === "histogram" ? sample.name.replace(PARTS, "") : sample.name;
    if (current === undefined || base !== current.name) throw new Error(`stands below another metric: ${line}`);
    const series = JSON.stringify([sample.name, Object.entries(sample.labels).sort()]);
    if (seen.has(series)) throw new Error(`is there twice: ${line}`);
    seen.add(series);
    current.samples.push(sample);
  }
  for (const metric of metrics.values()) checkHistogram(metric);
  return {
    metrics,
    sum(name, labels = {}) {
      const metric = metrics.get(name) ?? metrics.get(name.replace(PARTS, ""));
      if (metric === undefined) throw new Error(`there is no ${name}`);
      const wanted = Object.entries(labels);
      return metric.samples
        .filter((sample) => sample.name === name && wanted.every(([label, value]) => sample.labels[label] === value))
        .reduce((sum, { value }) => sum + value, 0);
    },
  };
}

function sampleIn(line: string): ParsedSample {
  const [, name = "", list = "", number = ""] = SAMPLE.exec(line) ?? [];
  const value = number === "+Inf" ? Number.POSITIVE_INFINITY : Number(number);
  if (name === "" || number === "" || Number.isNaN(value)) throw new Error(`is no sample: ${line}`);
  const labels: Record<string, string> = {};
  for (let rest = list; rest !== ""; ) {
    const [whole, label, escaped = ""] = LABEL.exec(rest) ?? [];
    if (whole === undefined || label === undefined || label in labels) throw new Error(`has broken labels: ${line}`);
    labels[label] = escaped.replace(/\\(.)/g, (_, character: string) => (character === "n" ? "\n" : character));
    rest = rest.slice(whole.length);
  }
  return { name, labels, value };
}

function checkHistogram({ name, type, samples }: ParsedMetric): void {
  if (type !== "histogram") return;
  const series = new Map<string, ParsedSample[]>();
  for (const sample of samples) {
    const { le: _, ...labels } = sample.labels;
    const key = JSON.stringify(Object.entries(labels).sort());
    series.set(key, [...(series.get(key) ?? []), sample]);
  }
  for (const [key, lines] of series) {
    const buckets = lines.filter((line) => line.name === `${name}_bucket`);
    const bounds = buckets.map(({ labels }) => (labels.le === "+Inf" ? Number.POSITIVE_INFINITY : Number(labels.le)));
    const rises = (numbers: readonly number[]): boolean =>
      numbers.every((number, index) => index === 0 || number >= (numbers[index - 1] ?? 0));
    const count = lines.find((line) => line.name === `${name}_count`)?.value;
    const sum = lines.find((line) => line.name === `${name}_sum`);
    if (bounds.at(-1) !== Number.POSITIVE_INFINITY || !rises(bounds) || !rises(buckets.map(({ value }) => value)) || sum === undefined) {
      throw new Error(`${name} ${key} is no histogram`);
    }
    if (count !== buckets.at(-1)?.value) throw new Error(`${name} ${key} has a count that its buckets have not`);
  }
}
