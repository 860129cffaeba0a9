/** The product's agent client, over gRPC (one stream) and over HTTP. */
import { type AgentClient, connectHttp, createAgentClient } from "@toolrunner/agent-sdk";
import { connectGrpc } from "@toolrunner/agent-sdk/grpc";
import { runLoad } from "../load.js";
import { PAYLOAD, PAYLOAD_JSON, PAYLOAD_SCHEMA } from "../payload.js";
import { processUsage } from "../processes/process-usage.js";
import type { AgentInterface, AgentRole } from "../processes/roles.js";
import { serveRole } from "../processes/serve-role.js";
import { AGENT_KEY, BINDING, TOOL, TOOLSET } from "./names.js";

const clients = new Map<AgentInterface, AgentClient>();

function clientOver(agent: AgentInterface): AgentClient {
  const client = clients.get(agent);
  if (client === undefined) throw new Error("the agent was not started");
  return client;
}

async function echo(client: AgentClient): Promise<void> {
  const call = await client.call({ toolset: TOOLSET, tool: TOOL, arguments: PAYLOAD });
  if (call.state !== "succeeded") throw new Error(`${call.id} is ${call.state}: ${call.error?.message ?? "no reason"}`);
}

serveRole<AgentRole>({
  ...processUsage(),
  async connect({ http, grpc }) {
    clients.set("http", createAgentClient({ key: AGENT_KEY, transport: connectHttp(http) }));
    clients.set("grpc", createAgentClient({ key: AGENT_KEY, transport: connectGrpc(grpc) }));
    const setUp = clientOver("http");
    await setUp.bindings.put(BINDING, { name: "Bench", kind: "backend" });
    const tool = { name: TOOL, description: "Gives back its arguments.", input_schema: PAYLOAD_SCHEMA, binding: BINDING };
    await setUp.toolsets.put(TOOLSET, { baseVersion: 0, tools: [tool] });
  },
  async check() {
    for (const client of clients.values()) {
      const call = await client.call({ toolset: TOOLSET, tool: TOOL, arguments: PAYLOAD });
      if (JSON.stringify(call.result) !== PAYLOAD_JSON)
        throw new Error(`${call.id} did not give back its arguments: ${JSON.stringify(call)}`);
    }
  },
  load: ({ agent, ...request }) => runLoad(() => echo(clientOver(agent)), request),
  async stop() {
    for (const client of clients.values()) client.close();
  },
});
