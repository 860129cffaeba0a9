/** What is printed. */
import {
  type Cell,
  type Comparison,
  CPU_AIM,
  compare,
  MEASURES,
  P50_AIM,
  P99_AIM,
  type Samples,
  type StageSample,
  THROUGHPUT_AIM,
} from "./figures.js";
import { LOADS } from "./options.js";
import { median } from "./statistics.js";
import { figure, type Row, renderTable } from "./table.js";

const HEAD: Row = ["ledger", "runner", "agent", "", ...MEASURES.map(({ name }) => name), "writes"];
const NAME_COLUMNS = 4;

const COSTS: readonly (readonly [name: string, field: keyof StageSample])[] = [
  ["agent", "agentCpuMsPerCall"],
  ["runner", "runnerCpuMsPerCall"],
  ["broker", "brokerCpuMsPerCall"],
];
const US_PER_MS = 1_000;

/** What a call costs each of the three processes: the clients have no aim, but what they spend is latency as well. */
function costs(cells: readonly Cell[]): string {
  const head = ["ledger", "runner", "agent", "", ...COSTS.flatMap(([name]) => LOADS.map((inFlight) => `${name} ${inFlight}`))];
  const of = (samples: Samples): Row =>
    COSTS.flatMap(([, field]) => LOADS.map((inFlight) => figure(median(samples[inFlight].map((sample) => sample[field])) * US_PER_MS)));
  const rows = cells.flatMap(({ ledger, runner, agent, product, floor }) => [
    [ledger, runner, agent, "product", ...of(product)],
    ["", "", "", "floor", ...of(floor)],
  ]);
  return renderTable(head, rows, NAME_COLUMNS);
}

/** The tables of all cells, what it means, and how many aims hold. */
export function report(cells: readonly Cell[]): string {
  const compared = cells.map((cell) => ({ cell, comparisons: compare(cell) }));
  const rows = compared.flatMap(({ cell, comparisons }, index) => [
    ...(index === 0 ? [] : [[]]),
    [
      cell.ledger,
      cell.runner,
      cell.agent,
      "product",
      ...comparisons.map(({ product }) => figure(product)),
      figure(cell.productWritesPerCall),
    ],
    ["", "", "", "floor", ...comparisons.map(({ floor }) => figure(floor)), figure(cell.floorWritesPerCall)],
    ["", "", "", "ratio", ...comparisons.map(ratioText), ""],
  ]);
  const aims = compared.flatMap(({ comparisons }) => comparisons.filter(({ holds }) => holds !== undefined));
  const held = aims.filter(({ holds }) => holds === true).length;
  return [
    renderTable(HEAD, rows, NAME_COLUMNS),
    "",
    "Processor time a call, µs, by process and calls in flight:",
    "",
    costs(cells),
    "",
    `Aims, product ÷ floor: p50 ≤ ${P50_AIM.atMost}, p99 ≤ ${P99_AIM.atMost} (one at a time); calls/s ≥ ${THROUGHPUT_AIM.atLeast}, ` +
      `the broker's processor time per call ≤ ${CPU_AIM.atMost} (64 and 256 in flight). ✓ holds, ✗ does not.`,
    "Figures are medians of the rounds; a ratio is the median of the rounds' ratios. Writes: ledger entries per call.",
    `${held} of ${aims.length} aims hold.`,
  ].join("\n");
}

function ratioText({ ratio, holds }: Comparison): string {
  return `${ratio.toFixed(2)}${holds === undefined ? "  " : holds ? " ✓" : " ✗"}`;
}

/** All samples, figures and verdicts, for programs. */
export function reportJson(cells: readonly Cell[], facts: Readonly<Record<string, unknown>>): string {
  const written = cells.map((cell) => ({
    ...cell,
    comparisons: compare(cell).map(({ measure, ...rest }) => ({ measure: measure.name, aim: measure.aim, ...rest })),
  }));
  return `${JSON.stringify({ ...facts, cells: written }, undefined, 2)}\n`;
}
