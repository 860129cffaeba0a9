/**
 * A runner in a process of its own, for tests that kill it: serves `work` over gRPC with a file journal. Each run writes a line
 * to the runs file; an argument `{"wait":true}` makes it run until the process ends. `spawn` runs a shell script as a child process of the call.
 */
import { appendFileSync } from "node:fs";
import { createRunner, defineTool } from "../index.js";
import { connectGrpc, fileJournal, spawnForCall } from "../node.js";

const [url = "", journal = "", runs = ""] = process.argv.slice(2);
const runner = createRunner({
  transport: connectGrpc(url),
  binding: "shop",
  journal: fileJournal(journal),
  stopGraceMs: 100,
  tools: [
    defineTool({
      name: "work",
      description: "Work.",
      input: { type: "object", properties: { wait: { type: "boolean" } } },
      run: async (args, ctx) => {
        appendFileSync(runs, `${ctx.callId}\n`);
        if (args.wait === true) await new Promise(() => {});
        return { call: ctx.callId };
      },
    }),
    defineTool({
      name: "spawn",
      description: "Run a script.",
      input: { type: "object", properties: { script: { type: "string" } } },
      run: (args, ctx) => spawnForCall(ctx, "bash", ["-c", String(args.script)]).ended,
    }),
  ],
});
runner.start().catch((error: unknown) => {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 7;
});
