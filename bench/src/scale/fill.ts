/** An agent that makes calls which nobody waits for, and that knows when listings have caught up. */
import { type AgentClient, createAgentClient } from "@toolrunner/agent-sdk";
import { connectGrpc } from "@toolrunner/agent-sdk/grpc";
import { PAYLOAD, PAYLOAD_SCHEMA } from "../payload.js";
import { serveRole } from "../processes/serve-role.js";
import { AGENT_KEY, BINDING } from "../product/names.js";
import { HOLD_TOOL, LANE_TOOL, SCALE_TOOLSET, TIMEOUT_SECONDS, TOOL_VERSION } from "./names.js";
import type { FillRole } from "./roles.js";

const LOOK_EVERY_MS = 100;
const INDEXED_WITHIN_MS = 300_000;

const clients: AgentClient[] = [];

function client(kind: "http" | "grpc"): AgentClient {
  const found = clients[kind === "http" ? 0 : 1];
  if (found === undefined) throw new Error("the agent was not connected");
  return found;
}

serveRole<FillRole>({
  async connect({ http, grpc }) {
    clients.push(createAgentClient({ url: http, key: AGENT_KEY }), createAgentClient({ key: AGENT_KEY, transport: connectGrpc(grpc) }));
    const tools = [HOLD_TOOL, LANE_TOOL].map((name) => ({
      name,
      version: TOOL_VERSION,
      description: "Takes its time.",
      input_schema: PAYLOAD_SCHEMA,
      binding: BINDING,
      idempotent: true,
      timeout_seconds: TIMEOUT_SECONDS,
    }));
    await client("http").toolsets.put(SCALE_TOOLSET, { baseVersion: 0, tools });
  },
  async fill({ tool, calls, inFlight }) {
    let left = calls;
    const chain = async (): Promise<void> => {
      while (left > 0) {
        left -= 1;
        await client("grpc").start({ toolset: SCALE_TOOLSET, tool, arguments: PAYLOAD });
      }
    };
    await Promise.all(Array.from({ length: Math.min(inFlight, calls) }, chain));
  },
  async indexed() {
    const begun = performance.now();
    const { id } = await client("http").start({ toolset: SCALE_TOOLSET, tool: LANE_TOOL, arguments: PAYLOAD });
    const shown = async (): Promise<boolean> => {
      try {
        return (await client("http").list({ limit: 1 })).data[0]?.id === id;
      } catch {
        // The index is not ready: it says so.
        return false;
      }
    };
    while (!(await shown())) {
      if (performance.now() - begun > INDEXED_WITHIN_MS) throw new Error(`listings did not catch up within ${INDEXED_WITHIN_MS} ms`);
      await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
    }
    await client("http").cancel(id, { mode: "skip" });
    return performance.now() - begun;
  },
  async stop() {
    for (const each of clients) each.close();
  },
});
