/**
 * An operator that decides about calls whose outcome nobody knows, truthfully: by what the handlers wrote.
 *
 * Invariant: `not_applied` is said only of a call of which no handler had written its start when it was said, or under whose newest
 * grant none has; a call of whose handler only the start is known is left, or given up.
 */
import { createAgentClient } from "@toolrunner/agent-sdk";
import { ADMIN_KEY, type Fleet } from "./fleet.js";
import type { Decision, HandlerEnd, HandlerStart } from "./history.js";
import type { SeededRandom } from "./seeded-random.js";

export interface Operator {
  readonly decisions: readonly Decision[];
  /** Resolves when the decision that is under way has been made. */
  stop(): Promise<void>;
}

export interface HandlersSay {
  readonly starts: readonly HandlerStart[];
  readonly ends: readonly HandlerEnd[];
}

const EVERY_MS = 2_500;
const REQUEST_MS = 4_000;
const LEFT_CHANCE = 0.25;

/** Starts to look for open reconciliations. `say` reads the handlers' files. */
export function startOperator(fleet: Fleet, random: SeededRandom, say: () => HandlersSay): Operator {
  const decisions: Decision[] = [];
  const left = new Set<string>();
  const clients = fleet.agentPorts.map(({ http }) =>
    createAgentClient({ url: `http://127.0.0.1:${http}`, key: ADMIN_KEY, retryForMs: 0, answerTimeoutMs: REQUEST_MS }),
  );
  let stopped = false;
  let wake = (): void => {};

  async function round(turn: number): Promise<void> {
    const client = clients[turn % clients.length];
    if (client === undefined) return;
    const { data } = await client.list({ state: "needs_reconciliation", limit: 100 });
    if (data.length === 0) return;
    for (const { id: call } of data) {
      if (left.has(call) || stopped) continue;
      if (random.chance(LEFT_CHANCE)) {
        left.add(call);
        continue;
      }
      const { starts, ends } = say();
      const askedAtMs = Date.now();
      const outcome = decide(call, starts, ends);
      decisions.push({ call, outcome, askedAtMs });
      const result = outcome === "applied" ? { call, by: "operator" } : undefined;
      await client.reconcile(call, { outcome, ...(result === undefined ? {} : { result }) });
    }
  }

  const running = (async () => {
    for (let turn = 0; !stopped; turn += 1) {
      // A broker that is away, or a call that was settled meanwhile: the next round sees what is left.
      await round(turn).catch(() => undefined);
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, EVERY_MS);
        wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
  })();
  return {
    decisions,
    async stop() {
      stopped = true;
      wake();
      await running;
      for (const client of clients) client.close();
    },
  };
}

/** Exported for its test. */
export function decide(call: string, starts: readonly HandlerStart[], ends: readonly HandlerEnd[]): Decision["outcome"] {
  const own = starts.filter((start) => start.call === call);
  if (own.length === 0) return "not_applied";
  const newest = Math.max(...own.map(({ fence }) => fence));
  const end = ends.find((each) => each.call === call && each.fence === newest);
  return end?.how === "returned" ? "applied" : "abandon";
}
