/**
 * Agents under load, and the log of what they were told.
 *
 * Invariants: a request is repeated with its key, at one broker after the other, until it has an answer; what repeating does not
 * change is a refusal, and kept; each answer that names a call is kept with the times between which it was given.
 */
import { type AgentClient, type Call, createAgentClient, ToolRunnerError } from "@toolrunner/agent-sdk";
import { connectGrpc } from "@toolrunner/agent-sdk/grpc";
import { type PlannedCall, planCall, type ToolName } from "./call-mix.js";
import { answersTurn } from "./check-agents.js";
import { ADMIN_KEY, BINDING, type Fleet } from "./fleet.js";
import type { Refusal, Sight } from "./history.js";
import { digestOf } from "./value-digest.js";

export interface LoadOptions {
  readonly seed: number;
  /** Calls begun a second, all agents together, as long as they keep up. */
  readonly rate: number;
  readonly agents: number;
  readonly tools?: readonly ToolName[];
}

/** One call from its first request to its answer. */
export interface Turn {
  readonly key: string;
  readonly call: string | null;
  readonly fromMs: number;
  /** Null: it has no answer yet. */
  readonly toMs: number | null;
}

export interface Load {
  readonly sights: readonly Sight[];
  readonly refusals: readonly Refusal[];
  readonly turns: readonly Turn[];
  /** Requests that were repeated. */
  readonly repeats: number;
  /** Begins no more calls, and resolves with whether all turns had their answer within `withinMs`. */
  finish(withinMs: number): Promise<boolean>;
  /** Asks for each acknowledged call again, and repeats some requests. Resolves when all were answered; rejects after `withinMs`. */
  lookAgain(withinMs: number): Promise<void>;
  close(): void;
}

const REQUEST_MS = 6_000;
const WAIT_MS = 4_000;
const PAUSE_MS = 150;
/** 409 and 404 are answers too, but to cancels and confirmations only. */
const REPEATED = new Set(["unreachable", "aborted", "ledger_away", "draining", "rate_limited"]);

interface Asker {
  readonly agent: string;
  /** Index of the broker that is asked next. */
  turn: number;
}

/** Starts the agents. */
export function startLoad(fleet: Fleet, options: LoadOptions): Load {
  const sights: Sight[] = [];
  const refusals: Refusal[] = [];
  const turns: { key: string; call: string | null; fromMs: number; toMs: number | null }[] = [];
  const planned = new Map<string, PlannedCall>();
  const given = new AbortController();
  let stopping = false;
  let repeats = 0;
  let next = 0;
  const began = performance.now();
  const clients = {
    http: fleet.agentPorts.map(({ http }) =>
      createAgentClient({ url: `http://127.0.0.1:${http}`, key: ADMIN_KEY, retryForMs: 0, answerTimeoutMs: REQUEST_MS }),
    ),
    grpc: fleet.agentPorts.map(({ grpc }) =>
      createAgentClient({ transport: connectGrpc(`grpc://127.0.0.1:${grpc}`), key: ADMIN_KEY, retryForMs: 0, answerTimeoutMs: REQUEST_MS }),
    ),
  };

  /** Undefined: it was refused, or the run is over. */
  async function ask<T>(asker: Asker, plan: PlannedCall, request: (client: AgentClient) => Promise<T>): Promise<T | undefined> {
    const own = clients[plan.transport];
    for (;;) {
      const client = own[asker.turn % own.length];
      if (client === undefined || given.signal.aborted) return undefined;
      try {
        return await request(client);
      } catch (cause) {
        if (given.signal.aborted) return undefined;
        if (!(cause instanceof ToolRunnerError)) throw cause;
        if (!REPEATED.has(cause.code) && cause.status !== 503) {
          refusals.push({ agent: asker.agent, key: plan.key, atMs: Date.now(), code: cause.code, message: cause.message });
          return undefined;
        }
        repeats += 1;
        asker.turn += 1;
        await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
      }
    }
  }

  /** Asks, and keeps what was answered. */
  async function see(
    asker: Asker,
    plan: PlannedCall,
    how: Sight["how"],
    request: (client: AgentClient) => Promise<Call>,
  ): Promise<Call | undefined> {
    let askedAtMs = 0;
    const call = await ask(asker, plan, (client) => {
      askedAtMs = Date.now();
      return request(client);
    });
    if (call === undefined) return undefined;
    const atMs = Date.now();
    let { result } = call;
    if (call.state === "succeeded" && result === undefined) result = await ask(asker, plan, (client) => client.wholeResult(call.id));
    if (call.state === "succeeded" && result === undefined) return undefined;
    sights.push({
      agent: asker.agent,
      key: plan.key,
      tool: plan.tool,
      call: call.id,
      how,
      askedAtMs,
      atMs,
      state: call.state,
      value: result === undefined || result === null ? null : digestOf(result),
      code: call.error?.code ?? null,
    });
    return call;
  }

  const requestOf = (plan: PlannedCall) => ({ toolset: BINDING, tool: plan.tool, arguments: plan.args, idempotencyKey: plan.key });

  async function take(agent: number, index: number): Promise<void> {
    const plan = planCall({ ...options, brokers: fleet.brokers.length }, agent, index);
    planned.set(plan.key, plan);
    const asker: Asker = { agent: `agent-${agent}`, turn: plan.broker };
    const turn = { key: plan.key, call: null as string | null, fromMs: Date.now(), toMs: null as number | null };
    turns.push(turn);
    let call = await see(asker, plan, "turn", (client) => client.start(requestOf(plan)));
    if (call !== undefined) turn.call = call.id;
    if (call !== undefined && plan.cancelAfterMs !== null) cancelLater(asker.agent, plan, call.id, plan.cancelAfterMs);
    while (call !== undefined && !answersTurn(call.state)) {
      const { id } = call;
      asker.turn += 1;
      call = await see(asker, plan, "turn", (client) => client.get(id, { waitMs: WAIT_MS }));
    }
    if (call === undefined) return;
    turn.toMs = Date.now();
    if (!plan.repeats) return;
    asker.turn += 1;
    await see(asker, plan, "repeat", (client) => client.start(requestOf(plan)));
  }

  function cancelLater(agent: string, plan: PlannedCall, id: string, afterMs: number): void {
    setTimeout(() => {
      // Settled, or not to be cancelled: answers that a cancel may get.
      const cancel = (client: AgentClient): Promise<unknown> =>
        client.cancel(id, { mode: plan.cancelMode, reason: "changed its mind" }).catch((cause: unknown) => {
          if (!(cause instanceof ToolRunnerError) || cause.status !== 409) throw cause;
        });
      void ask({ agent, turn: plan.broker + 1 }, plan, cancel);
    }, afterMs);
  }

  async function work(agent: number): Promise<void> {
    for (let index = 0; ; index += 1) {
      const dueMs = (next / options.rate) * 1_000;
      next += 1;
      const wait = dueMs - (performance.now() - began);
      if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
      // Who fell behind does not make up for it: the rate is the most, not the mean.
      else if (wait < -1_000) next = Math.ceil(((performance.now() - began) / 1_000) * options.rate);
      if (stopping) return;
      await take(agent, index);
    }
  }

  const working = Promise.all(Array.from({ length: options.agents }, (_, agent) => work(agent)));
  // Whoever waits for it is told; until then it must not end the process.
  working.catch(() => undefined);
  return {
    sights,
    refusals,
    turns,
    get repeats() {
      return repeats;
    },
    async finish(withinMs) {
      stopping = true;
      const late = setTimeout(() => given.abort(), withinMs);
      await working;
      clearTimeout(late);
      return !given.signal.aborted;
    },
    async lookAgain(withinMs) {
      const until = performance.now() + withinMs;
      const keys = [...new Map(sights.map((sight) => [sight.call, sight.key]))];
      let turn = 0;
      const look = async (): Promise<void> => {
        for (let pair = keys.pop(); pair !== undefined; pair = keys.pop()) {
          if (performance.now() > until) throw new Error(`${keys.length} calls were not looked at again within ${withinMs} ms`);
          const [call, key] = pair;
          const plan = planned.get(key);
          if (plan === undefined) continue;
          turn += 1;
          const asker: Asker = { agent: "auditor", turn };
          if (turn % 4 === 0) await see(asker, plan, "final", (client) => client.start(requestOf(plan)));
          else await see(asker, plan, "final", (client) => client.get(call));
        }
      };
      await Promise.all(Array.from({ length: 8 }, look));
    },
    close() {
      given.abort();
      for (const client of [...clients.http, ...clients.grpc]) client.close();
    },
  };
}
