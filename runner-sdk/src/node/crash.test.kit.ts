/**
 * A runner in a process of its own, for tests that kill it: serves `work` over gRPC with a file journal. Each run writes a line
 * to the runs file; an argument `{"wait":true}` makes it run until the process ends.
 */
import { appendFileSync } from "node:fs";
import { createRunner, defineTool } from "../index.js";
import { connectGrpc, fileJournal } from "../node.js";

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
  ],
});
runner.start().catch((error: unknown) => {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 7;
});
