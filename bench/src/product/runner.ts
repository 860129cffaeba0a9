/**
 * The product's runner with one tool that gives back its arguments.
 *
 * Its journal is in memory: what a runner with a file pays for its own durability is not part of the two appends of a call.
 */
import { createRunner, defineTool } from "@toolrunner/runner-sdk";
import { connectGrpc, connectWebSocket } from "@toolrunner/runner-sdk/node";
import { PAYLOAD_SCHEMA } from "../payload.js";
import { processUsage } from "../processes/process-usage.js";
import type { RunnerRole } from "../processes/roles.js";
import { serveRole } from "../processes/serve-role.js";
import { BINDING, RUNNER_KEY, TOOL } from "./names.js";

/** More than any load has in flight: no call waits for a slot. */
const CONCURRENCY = 1_024;

let stop: () => Promise<void> = async () => undefined;

serveRole<RunnerRole>({
  ...processUsage(),
  async start({ transport, places }) {
    const runner = createRunner({
      transport: transport === "grpc" ? connectGrpc(places.grpc) : connectWebSocket(places.ws),
      binding: BINDING,
      token: RUNNER_KEY,
      concurrency: CONCURRENCY,
      tools: [defineTool({ name: TOOL, description: "Gives back its arguments.", input: PAYLOAD_SCHEMA, run: (args) => args })],
    });
    await runner.start();
    stop = () => runner.stop();
  },
  stop: () => stop(),
});
