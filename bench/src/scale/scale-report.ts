/** What is printed of the measurements at scale. */
import { meets, type Sample } from "../figures.js";
import type { Stall } from "../processes/roles.js";
import { figure, type Row, renderTable } from "../table.js";
import { type Contrast, contrastFigure, GROWTH_AIM } from "./contrast.js";
import { type IdleSessions, RECONNECT_AIM_MS, SESSION_BYTES_AIM, STALL_AIM_MS } from "./idle-sessions.js";
import type { ScaleFigures } from "./scale.js";

const KIB = 1_024;
const FIELDS: readonly (readonly [name: string, field: keyof Sample, aimed: boolean])[] = [
  ["p50 ms", "p50Ms", false],
  ["p99 ms", "p99Ms", false],
  ["calls/s", "callsPerSecond", false],
  ["cpu ms", "brokerCpuMsPerCall", true],
];

/** An aim and whether it holds. */
export interface Verdict {
  readonly aim: string;
  readonly measured: number;
  readonly holds: boolean;
}

/** All aims of the measurements at scale. */
export function scaleVerdicts(figures: ScaleFigures): readonly Verdict[] {
  return [
    ...figures.sessions.flatMap((found) => sessionVerdicts(found)),
    ...figures.settled.map(({ contrast }) => costVerdict(contrast)),
    ...figures.open.flatMap(({ queued, lane, running }) => [queued, lane, running].map(costVerdict)),
  ];
}

function sessionVerdicts({ ledger, bare, product, oneAtATime, restart }: IdleSessions): readonly Verdict[] {
  const overBytes = product.residentBytes - bare.residentBytes;
  const p99 = contrastFigure(oneAtATime, "p99Ms")?.ratio ?? Number.NaN;
  return [
    {
      aim: `${ledger}: KiB of a session over a bare connection ≤ ${SESSION_BYTES_AIM / KIB}`,
      measured: overBytes / KIB,
      holds: overBytes <= SESSION_BYTES_AIM,
    },
    {
      aim: `${ledger}: longest stall with idle sessions, ms ≤ ${STALL_AIM_MS}`,
      measured: product.stall.busyMs,
      holds: product.stall.busyMs <= STALL_AIM_MS,
    },
    { aim: `${ledger}: p99 among many sessions ÷ among few ≤ ${GROWTH_AIM.atMost}`, measured: p99, holds: meets(p99, GROWTH_AIM) },
    {
      aim: `${ledger}: all reconnected after a kill, no call failed, s ≤ ${RECONNECT_AIM_MS / 1_000}`,
      measured: restart.reconnectMs / 1_000,
      holds: restart.reconnectMs <= RECONNECT_AIM_MS && restart.failure === undefined,
    },
  ];
}

function costVerdict(contrast: Contrast): Verdict {
  const ratio = contrastFigure(contrast, "brokerCpuMsPerCall")?.ratio ?? Number.NaN;
  return {
    aim: `${contrast.ledger}: cpu per call with many ${contrast.what} ÷ with few ≤ ${GROWTH_AIM.atMost}`,
    measured: ratio,
    holds: meets(ratio, GROWTH_AIM),
  };
}

/** The tables, and how many aims hold. */
export function scaleReport(figures: ScaleFigures): string {
  const verdicts = scaleVerdicts(figures);
  return [
    renderTable(
      ["ledger", "", "connections", "RSS KiB each", "heap KiB each", "idle cpu %", "stall ms", "connect s", "its stall ms"],
      figures.sessions.flatMap(costRows),
      2,
    ),
    renderTable(
      ["ledger", "after a kill", "start s", "all back s", "stall ms", "calls meanwhile", "failed"],
      figures.sessions.map(({ ledger, product, restart }) => [
        ledger,
        `${product.connections.toLocaleString("en-US")} sessions`,
        figure(restart.startMs / 1_000),
        figure(restart.reconnectMs / 1_000),
        stallText(restart.stall),
        restart.calls.toLocaleString("en-US"),
        restart.failure ?? "none",
      ]),
      2,
    ),
    renderTable(
      ["ledger", "what there is few and much of", "", ...FIELDS.map(([name]) => name)],
      contrastsOf(figures).flatMap(contrastRows),
      3,
    ),
    renderTable(
      ["ledger", "how long", "s"],
      [
        ...figures.settled.flatMap(({ contrast, fillMs, indexedMs }): Row[] => [
          [contrast.ledger, `to store ${contrast.many.toLocaleString("en-US")} settled calls`, figure(fillMs / 1_000)],
          [contrast.ledger, "until listings show them after a start", figure(indexedMs / 1_000)],
        ]),
        ...figures.open.flatMap(({ ledger, queued, grantMs, grantStall, runningStall }): Row[] => [
          [ledger, `to grant ${queued.many.toLocaleString("en-US")} calls that wait`, figure(grantMs / 1_000)],
          [ledger, "longest stall meanwhile", figure(grantStall.busyMs / 1_000)],
          [ledger, "longest stall while they run", figure(runningStall.busyMs / 1_000)],
        ]),
      ],
      2,
    ),
    verdicts.map(({ aim, measured, holds }) => `${holds ? "✓" : "✗"} ${aim}: ${figure(measured)}`).join("\n"),
    "Stalls: the longest time that the event loop computed in one turn; in brackets, that it did not turn, which a busy machine has a part in.",
    `Figures are medians of the rounds; a ratio is the median of the rounds' ratios. ${verdicts.filter(({ holds }) => holds).length} of ${verdicts.length} aims hold.`,
  ].join("\n\n");
}

function contrastsOf({ sessions, settled, open }: ScaleFigures): readonly Contrast[] {
  return [
    ...sessions.flatMap(({ oneAtATime, inFlight64 }) => [oneAtATime, inFlight64]),
    ...settled.map(({ contrast }) => contrast),
    ...open.flatMap(({ queued, lane, running }) => [queued, lane, running]),
  ];
}

function costRows({ ledger, bare, product }: IdleSessions): Row[] {
  return [
    { side: "product", cost: product },
    { side: "bare ws", cost: bare },
  ].map(({ side, cost }) => [
    side === "product" ? ledger : "",
    side,
    cost.connections.toLocaleString("en-US"),
    figure(cost.residentBytes / KIB),
    figure(cost.heapBytes / KIB),
    figure(cost.cpuShare * 100),
    stallText(cost.stall),
    figure(cost.connectMs / 1_000),
    stallText(cost.connectStall),
  ]);
}

function stallText({ busyMs, wallMs }: Stall): string {
  return `${figure(busyMs)} (${figure(wallMs)})`;
}

function contrastRows(contrast: Contrast): Row[] {
  const found = FIELDS.map(([, field, aimed]) => ({ aimed, values: contrastFigure(contrast, field) }));
  const ratioText = ({ aimed, values }: (typeof found)[number]): string =>
    values === undefined ? "" : `${values.ratio.toFixed(2)}${aimed ? (meets(values.ratio, GROWTH_AIM) ? " ✓" : " ✗") : "  "}`;
  const text = (value: number | undefined): string => (value === undefined ? "" : figure(value));
  return [
    [contrast.ledger, contrast.what, contrast.few.toLocaleString("en-US"), ...found.map(({ values }) => text(values?.few))],
    ["", "", contrast.many.toLocaleString("en-US"), ...found.map(({ values }) => text(values?.many))],
    ["", "", "ratio", ...found.map(ratioText)],
  ];
}
