/**
 * A process with a workspace, for tests of what happens at its end. Arguments: root folder, how to end. It leaves two jobs in
 * the background, one in a session of its own, prints the answer of `bash` (with their process ids) as JSON, and ends as told;
 * with "create" it only makes the workspace.
 */
import type { ToolContext } from "@toolrunner/runner-sdk";
import { createWorkspace } from "../workspace-tools.js";

const [, , root = ".", ending = "exit"] = process.argv;
const workspace = createWorkspace({ root });
if (ending === "create") process.exit(0);
const bash = workspace.tools.find((tool) => tool.name === "bash");
const context: Pick<ToolContext, "callId" | "grant" | "subject" | "signal" | "progress"> = {
  callId: `call_end_${process.pid}`,
  grant: { grantId: `grant_end_${process.pid}`, toolset: "", toolsetVersion: 1, session: "", traceparent: "", token: "", journalId: "" },
  subject: "",
  signal: new AbortController().signal,
  progress: () => undefined,
};
const answer = await bash?.run(
  {
    command:
      "sleep 1000 & echo $!; (trap '' TERM HUP; setsid bash -c 'echo $$; trap \"\" TERM HUP; while :; do sleep 1; done') & sleep 0.3",
  },
  context as ToolContext,
);
process.stdout.write(`${JSON.stringify(answer)}\n`);
if (ending === "exit") process.exit(0);
if (ending === "throw") {
  setImmediate(() => {
    throw new Error("a fault that nobody catches");
  });
}
if (ending === "wait") setInterval(() => undefined, 1_000);
// "natural": nothing is left to do, so the process ends by itself.
