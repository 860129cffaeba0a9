/** The floor's agent: one gRPC stream, and `fetch` over kept connections, as the product's client uses them. */
import { runLoad } from "../load.js";
import { PAYLOAD_JSON } from "../payload.js";
import { processUsage } from "../processes/process-usage.js";
import type { AgentInterface, AgentRole } from "../processes/roles.js";
import { serveRole } from "../processes/serve-role.js";
import { openFloorStream } from "./client.js";
import { createExchange } from "./exchange.js";

const payload = Buffer.from(PAYLOAD_JSON);
const callers = new Map<AgentInterface, () => Promise<void>>();
let stop: () => void = () => undefined;

function checked(answer: Buffer | string): void {
  if (answer.length !== payload.length) throw new Error(`${answer.length} bytes came back, ${payload.length} were sent`);
}

serveRole<AgentRole>({
  ...processUsage(),
  async connect({ http, grpc }) {
    const stream = openFloorStream(grpc, "call");
    const exchange = createExchange((frame) => stream.write(frame));
    stream.on("data", (frame: Buffer) => exchange.received(frame));
    callers.set("grpc", async () => checked(await exchange.ask(payload)));
    const headers = { "content-type": "application/json" };
    callers.set("http", async () => {
      const response = await fetch(http, { method: "POST", headers, body: payload });
      checked(await response.text());
    });
    stop = () => stream.end();
  },
  async check() {
    for (const call of callers.values()) await call();
  },
  load({ agent, ...request }) {
    const call = callers.get(agent);
    if (call === undefined) throw new Error("the agent was not started");
    return runLoad(call, request);
  },
  async stop() {
    stop();
  },
});
