/**
 * Agents that keep calling through two brokers while things around them stop: each call goes to one broker, and with the same key to
 * the other one when that does not answer.
 *
 * What they hold against the brokers: an acknowledged call keeps its id, whichever broker is asked, and settles.
 */
import { eventually } from "../kit/eventually.js";

/** A call that a broker acknowledged. */
export interface Acknowledged {
  readonly id: string;
  readonly order: string;
  readonly tool: string;
  state: string;
}

/** What came of a load. */
export interface LoadReport {
  readonly calls: readonly Acknowledged[];
  /** Requests that failed, or were answered 5xx, and were repeated. */
  readonly repeats: number;
  /** Longest time between two calls that settled, in ms, the beginning and the end included. */
  readonly longestGapMs: number;
}

/** A load that runs. */
export interface Load {
  /** Calls that are settled so far. */
  settled(): number;
  /** Ends it, and resolves when every acknowledged call has settled; rejects when one has not in its time. */
  stop(): Promise<LoadReport>;
}

const AGENTS = 6;
const REQUEST_MS = 15_000;
const PAUSE_MS = 100;
const SETTLE_MS = 60_000;
const SETTLED = new Set(["succeeded", "failed", "cancelled", "timed_out", "denied"]);

/** Starts agents that call `tools` in turn, in handlers of 20 to 800 ms. `name` makes its orders its own; a call settles within `settleMs` (60,000). */
export function startLoad(urls: readonly string[], key: string, name: string, tools: readonly string[], settleMs = SETTLE_MS): Load {
  const calls: Acknowledged[] = [];
  const settledAt: number[] = [performance.now()];
  const faults: string[] = [];
  let repeats = 0;
  let number = 0;
  let stopping = false;

  async function ask(path: string, init: RequestInit, turn: number): Promise<{ readonly id: string; readonly state: string }> {
    for (let attempt = 0; ; attempt += 1) {
      const url = urls[(turn + attempt) % urls.length] ?? "";
      let why: string;
      try {
        const answer = await fetch(`${url}${path}`, {
          ...init,
          headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
          signal: AbortSignal.timeout(REQUEST_MS),
        });
        const body = (await answer.json()) as { readonly id: string; readonly state: string };
        if (answer.status < 300) return body;
        why = `${answer.status} ${JSON.stringify(body)}`;
        if (answer.status < 500) throw new Refused(`${path}: ${why}`);
      } catch (cause) {
        if (cause instanceof Refused) throw cause;
        why = String(cause);
      }
      repeats += 1;
      if (attempt >= 600) throw new Refused(`${path}: no broker answered: ${why}`);
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
  }

  async function agent(): Promise<void> {
    while (!stopping) {
      number += 1;
      const turn = number;
      const order = `${name}-${turn}`;
      const tool = tools[turn % tools.length] ?? "";
      const body = { toolset: "shop", tool, arguments: { order, ms: 20 + ((turn * 137) % 780) }, idempotency_key: order, wait_seconds: 10 };
      const call = await ask("/v1/calls", { method: "POST", body: JSON.stringify(body) }, turn);
      const acknowledged: Acknowledged = { id: call.id, order, tool, state: call.state };
      calls.push(acknowledged);
      const deadline = performance.now() + settleMs;
      while (!SETTLED.has(acknowledged.state)) {
        if (performance.now() > deadline) throw new Refused(`${acknowledged.id} is ${acknowledged.state} after ${settleMs} ms`);
        const found = await ask(`/v1/calls/${acknowledged.id}?wait_seconds=5`, {}, turn + 1);
        if (found.id !== acknowledged.id) throw new Refused(`asked for ${acknowledged.id}, was told of ${found.id}`);
        acknowledged.state = found.state;
      }
      settledAt.push(performance.now());
    }
  }

  const agents = Array.from({ length: AGENTS }, () => agent().catch((cause: Error) => void faults.push(cause.message)));
  return {
    settled: () => settledAt.length - 1,
    async stop() {
      // Not at the worst moment only: calls go through again.
      const before = settledAt.length;
      await eventually("calls that settle at the end", () => settledAt.length > before + AGENTS || faults.length > 0, settleMs);
      stopping = true;
      await Promise.all(agents);
      if (faults.length > 0) throw new Error(faults.join("\n"));
      settledAt.push(performance.now());
      const sorted = [...settledAt].sort((a, b) => a - b);
      return { calls, repeats, longestGapMs: Math.max(...sorted.slice(1).map((at, index) => at - (sorted[index] ?? at))) };
    },
  };
}

/** What repeating does not change. */
class Refused extends Error {}
