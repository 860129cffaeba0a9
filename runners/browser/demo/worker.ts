/** A runner in a worker: no page to act on, but tools that compute. */
import { createRunner, defineTool } from "@toolrunner/runner-sdk";
import { connectWebSocket } from "@toolrunner/runner-sdk/browser";
import { readConnection } from "./connection.js";

const sum = defineTool({
  name: "sum",
  description: "Add numbers.",
  input: { type: "object", properties: { numbers: { type: "array", items: { type: "number" } } }, required: ["numbers"] },
  behaviour: "read_only",
  run: ({ numbers }) => ({ sum: numbers.reduce((total, number) => total + number, 0) }),
});

async function serve(subject: string): Promise<void> {
  const { ws, runner_token } = await readConnection();
  const runner = createRunner({
    transport: connectWebSocket(ws),
    binding: "demo_worker",
    subject,
    token: runner_token,
    tools: [sum],
  });
  runner.onState((state) => postMessage({ state: `${state.kind} as ${runner.runnerId}` }));
  await runner.start();
}

addEventListener("message", ({ data }: MessageEvent<{ readonly subject?: string }>) => {
  if (data.subject === undefined) return;
  serve(data.subject).catch((error: unknown) => postMessage({ state: error instanceof Error ? error.message : String(error) }));
});
