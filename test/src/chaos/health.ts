/** When a run had no way from an agent over a broker, NATS and a runner, judged from the faults that were in force. Pure. */
import type { Injected } from "./inject.js";
import { type Span, union } from "./stalls.js";

export interface FleetSize {
  readonly brokers: number;
  readonly natsServers: number;
  readonly runners: number;
}

/** A process needs this long to be of use after it was started, woken or reached again. */
const RECOVERY_MS = 1_000;
/** Faults after which a link still carries what it is given. */
const HARMLESS = new Set(["delay", "split"]);

/**
 * Spans in which all brokers, all runners, or so many NATS servers that no majority is left, were out of order.
 * A broker that lost one link to NATS has others, and is counted as well.
 */
export function unhealthySpans(injected: readonly Injected[], size: FleetSize): readonly Span[] {
  const outOf = (kind: string, total: number, needed: number): readonly Span[] => {
    const spans = Array.from({ length: total }, (_, index) => union(spansOf(injected, kind, index + 1)));
    return whereAtLeast(spans, total - needed + 1);
  };
  return union([
    ...outOf("broker", size.brokers, 1),
    ...outOf("runner", size.runners, 1),
    ...outOf("nats", size.natsServers, Math.floor(size.natsServers / 2) + 1),
  ]);
}

function spansOf(injected: readonly Injected[], kind: string, index: number): readonly Span[] {
  const links = { broker: ["broker-nats", "agent-broker"], runner: ["runner-broker"], nats: ["nats-nats"] }[kind] ?? [];
  return injected
    .filter(({ fault }) => fault.target === `${kind}-${index}` || links.some((link) => fault.target === `${link}:${index}`))
    .filter(({ fault }) => !HARMLESS.has(fault.kind))
    .map(({ fromMs, toMs }): Span => [fromMs, toMs + RECOVERY_MS]);
}

/** Where at least `least` of the lists hold a span. */
function whereAtLeast(lists: readonly (readonly Span[])[], least: number): readonly Span[] {
  const edges = lists.flatMap((spans) => spans.flatMap(([from, to]) => [[from, 1] as const, [to, -1] as const]));
  edges.sort((a, b) => a[0] - b[0] || b[1] - a[1]);
  const found: Span[] = [];
  let held = 0;
  let since = 0;
  for (const [at, step] of edges) {
    if (held < least && held + step >= least) since = at;
    if (held >= least && held + step < least) found.push([since, at]);
    held += step;
  }
  return found;
}
