/** The stage of one case about a broker: the broker under test in its process, runners of the suite, and an agent over HTTP. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { FrameEncoding } from "@toolrunner/proto";
import { must } from "./run-cases.js";
import { BINDING, RUNNER_TOOLS } from "./runner-stage.js";
import { ScriptedRunner } from "./scripted-runner.js";
import { Subject, type SubjectCommand } from "./subject.js";

/** A call as an agent sees it. */
export interface AgentCall {
  readonly id: string;
  readonly state: string;
  readonly attempt: number;
  readonly result: unknown;
  readonly error: { readonly code: string } | null;
}

export interface BrokerStage {
  /** A connection of the suite; without a word yet. `null`: without a key. */
  connect(token?: string | null): Promise<ScriptedRunner>;
  /** A welcomed session. */
  runner(hello?: Parameters<ScriptedRunner["greet"]>[0]): Promise<ScriptedRunner>;
  readonly token: string;
  readonly encoding: FrameEncoding;
  /** Creates a call once its tool is known, and does not wait for it. */
  call(tool: string, args?: unknown): Promise<AgentCall>;
  /** The call when its turn is answered, or after the time. */
  answer(id: string, waitSeconds?: number): Promise<AgentCall>;
  cancel(id: string): Promise<number>;
  close(): Promise<void>;
}

export async function openBrokerStage(command: SubjectCommand, encoding: FrameEncoding): Promise<BrokerStage> {
  const folder = await mkdtemp(join(tmpdir(), "toolrunner-conformance-"));
  const subject = new Subject(command);
  const runners: ScriptedRunner[] = [];
  const close = async (): Promise<void> => {
    for (const one of runners) one.cut();
    await subject.kill();
    await rm(folder, { recursive: true, force: true });
  };
  try {
    subject.tell({ do: "start", data: folder, binding: BINDING, toolset: BINDING, tools: RUNNER_TOOLS });
    const ready = await subject.event("ready", () => true, 30_000);
    const [url, http, key, token] = ["ws", "http", "agent_key", "runner_token"].map((field) => {
      const value = ready[field];
      must(typeof value === "string", `the line "ready" has no text "${field}": ${JSON.stringify(ready)}`);
      return value;
    }) as [string, string, string, string];
    const agent = async (method: string, path: string, body?: unknown): Promise<{ status: number; body: AgentCall }> => {
      const response = await fetch(`${http}${path}`, {
        method,
        headers: { authorization: `Bearer ${key}`, ...(body === undefined ? {} : { "content-type": "application/json" }) },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      return { status: response.status, body: (await response.json()) as AgentCall };
    };
    const connect = async (given?: string | null): Promise<ScriptedRunner> => {
      const runner = await ScriptedRunner.connect(url, encoding, given === null ? undefined : (given ?? token));
      runners.push(runner);
      return runner;
    };
    return {
      token,
      encoding,
      connect,
      async runner(hello) {
        const runner = await connect();
        await runner.greet(hello);
        return runner;
      },
      async call(tool, args = {}) {
        // A development broker makes the toolset of what the runner tells it, which takes a moment.
        for (let tries = 0; ; tries += 1) {
          const { status, body } = await agent("POST", "/v1/calls", { toolset: BINDING, tool, arguments: args });
          if (status === 202 || status === 200) return body;
          must(status === 404 && tries < 100, `POST /v1/calls answered ${status}: ${JSON.stringify(body)}`);
          await new Promise((resolve) => setTimeout(resolve, 50));
        }
      },
      answer: async (id, waitSeconds = 5) => (await agent("GET", `/v1/calls/${id}?wait_seconds=${waitSeconds}`)).body,
      cancel: async (id) => (await agent("POST", `/v1/calls/${id}/cancel`, {})).status,
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}
