/** A module for `toolrunner run`, as users write them, with tools that tests can steer. */

/** TypeScript. `wait` says that it has begun by one file and ends when another is there. */
export const SHOP_TOOLS = `
import { existsSync, writeFileSync } from "node:fs";
import { defineTool, ToolError } from "@toolrunner/runner-sdk";

interface Wait { readonly until: string; readonly begun: string }

const object = { type: "object" } as const;
export default [
  defineTool({ name: "echo", description: "Answers its arguments.", input: { ...object, properties: { text: { type: "string" } }, required: ["text"] }, behaviour: "read_only", run: async (args) => args }),
  defineTool({ name: "fail", description: "Fails.", input: object, run: async () => { throw new ToolError("order_unknown", "there is no such order"); } }),
  defineTool({ name: "ask", description: "Needs a person.", input: object, confirmation: "always", run: async () => "done" }),
  defineTool({
    name: "wait", version: "2", description: "Ends when a file is there.", input: object, idempotent: true, cancellable: true,
    run: async (args: unknown, ctx) => {
      const { until, begun } = args as Wait;
      writeFileSync(begun, "");
      while (!existsSync(until)) {
        ctx.signal.throwIfAborted();
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      return "waited";
    },
  }),
];
`;
