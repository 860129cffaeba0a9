/** The tools of the compose file's runner. Put your own here, and their definitions into toolset.json. */
import { defineTool, ToolError } from "@toolrunner/runner-sdk";

const refund = defineTool({
  name: "refund",
  description: "Refund an order.",
  input: { type: "object", properties: { order: { type: "string" } }, required: ["order"] },
  idempotent: true,
  async run({ order }: { order: string }) {
    return { order, refunded: true };
  },
});

const stock = defineTool({
  name: "stock",
  description: "How many of an article are left.",
  input: { type: "object", properties: { article: { type: "string" } }, required: ["article"] },
  behaviour: "read_only",
  async run({ article }: { article: string }) {
    if (article !== "lamp") throw new ToolError("unknown_article", `there is no ${article}`);
    return { article, left: 3 };
  },
});

export default [refund, stock];
