/** Acceptance, keys, results, submissions, progress. */
import { createHash } from "node:crypto";
import type { CallEvent } from "@toolrunner/agent-sdk";
import { defineTool, ToolError } from "@toolrunner/runner-sdk";
import { expect } from "vitest";
import { eventually } from "../../kit/eventually.js";
import { scenario } from "../scenario.js";
import { echoTool, gate, gatedTool, publish, TEXT_INPUT } from "./support.js";

export const CALL_SCENARIOS = [
  scenario(["X1", "I1"], "a call runs on a runner and its result comes back with its events in order", async (cell) => {
    const binding = cell.name("shop");
    await cell.runner({ binding, tools: [echoTool().tool] });
    const call = await cell.client.call({ toolset: binding, tool: "echo", arguments: { text: "hello" } });
    expect(call).toMatchObject({ state: "succeeded", result: { text: "hello" }, attempt: 1, error: null, binding, toolset_version: 1 });
    expect(call.model_result).toEqual({ text: '{"text":"hello"}', bytes_before: 16, bytes_after: 16, truncated: false });
    expect(call.receipt).toMatchObject({ attempt: 1, outcome: "succeeded" });
    const events: CallEvent[] = [];
    for await (const event of cell.client.events(call.id)) {
      events.push(event);
    }
    expect(events.map((event) => event.event)).toEqual(["requested", "queued", "granted", "started", "settled"]);
    expect(events.map((event) => event.seq)).toEqual([1, 2, 3, 4, 5]);
  }),

  scenario(["X1"], "arguments that break the schema are refused with every fault and its path, and make no call", async (cell) => {
    const binding = cell.name("strict");
    await publish(cell, binding, "backend", [
      {
        name: "order",
        input_schema: {
          type: "object",
          properties: {
            id: { type: "string" },
            lines: {
              type: "array",
              items: { type: "object", properties: { count: { type: "integer", minimum: 1 } }, required: ["count"] },
            },
          },
          required: ["id"],
          additionalProperties: false,
        },
      },
    ]);
    const refused = await cell.http("POST", "/v1/calls", {
      toolset: binding,
      tool: "order",
      arguments: { lines: [{ count: 0 }, {}], extra: true },
    });
    expect(refused.status).toBe(400);
    expect(refused.body.error).toMatchObject({ type: "invalid_request_error", code: "arguments_invalid" });
    const details = refused.body.error?.details as { path: string; expected: string; actual: string }[];
    expect(details.map((detail) => detail.path).sort()).toEqual(["/extra", "/id", "/lines/0/count", "/lines/1/count"]);
    expect(details.every((detail) => detail.expected.length > 0 && detail.actual.length > 0)).toBe(true);
    const listed = await cell.http("GET", `/v1/calls?toolset=${binding}`);
    expect(listed.body.data).toEqual([]);
  }),

  scenario(["X1"], "a result that breaks the output schema settles as failed result_invalid and is kept", async (cell) => {
    const binding = cell.name("results");
    const tool = defineTool({
      name: "count",
      description: "Counts.",
      input: { type: "object" },
      output: { type: "object", properties: { n: { type: "integer" } }, required: ["n"] },
      run: async () => ({ n: "many" }),
    });
    await cell.runner({ binding, tools: [tool] });
    const call = await cell.client.call({ toolset: binding, tool: "count", arguments: {} });
    expect(call.state).toBe("failed");
    expect(call.error).toMatchObject({ code: "result_invalid", retryable: false, details: [{ path: "/n" }] });
    expect(call.result).toEqual({ n: "many" });
  }),

  scenario(["X2", "I4"], "fifty concurrent creations with one key are one call, which runs once", async (cell) => {
    const binding = cell.name("keys");
    const echo = echoTool();
    await cell.runner({ binding, tools: [echo.tool] });
    const request = { toolset: binding, tool: "echo", arguments: { text: "once" }, idempotencyKey: cell.name("key") };
    const calls = await Promise.all(Array.from({ length: 50 }, () => cell.client.call(request)));
    expect(new Set(calls.map((call) => call.id)).size).toBe(1);
    expect(calls.every((call) => call.state === "succeeded")).toBe(true);
    expect(echo.runs()).toBe(1);
    await expect(cell.client.call({ ...request, arguments: { text: "other" } })).rejects.toMatchObject({
      code: "idempotency_conflict",
      status: 409,
    });
    const other = await cell.client.call({ ...request, agent: "another" });
    expect(other.id).not.toBe(calls[0]?.id);
  }),

  scenario(
    ["B5"],
    "a repeat with the same key gets its call although the toolset has changed so that it would be refused now",
    async (cell) => {
      const binding = cell.name("moved");
      await cell.runner({ binding, tools: [echoTool().tool] });
      const request = { toolset: binding, tool: "echo", arguments: { text: "early" }, idempotencyKey: cell.name("key") };
      const first = await cell.client.call(request);
      const toolset = await cell.http("GET", `/v1/toolsets/${binding}`);
      const renamed = (toolset.body.tools as Record<string, unknown>[]).map((tool) => ({ ...tool, name: "renamed" }));
      expect((await cell.http("PUT", `/v1/toolsets/${binding}`, { base_version: toolset.body.version, tools: renamed })).status).toBe(200);
      expect((await cell.client.call(request)).id).toBe(first.id);
      await expect(cell.client.call({ ...request, idempotencyKey: cell.name("key") })).rejects.toMatchObject({
        code: "tool_unknown",
        status: 404,
      });
    },
  ),

  scenario(["X6"], "progress streams to the agent in order while the call runs", async (cell) => {
    const binding = cell.name("news");
    const way = gate();
    const tool = defineTool({
      name: "work",
      description: "Tells.",
      input: { type: "object" },
      async run(_args: unknown, ctx) {
        for (let step = 1; step <= 5; step += 1) {
          ctx.progress({ text: `step ${step}`, percentage: step * 20 });
        }
        await way.opened;
        return "ok";
      },
    });
    await cell.runner({ binding, tools: [tool] });
    const call = await cell.client.start({ toolset: binding, tool: "work", arguments: {} });
    const told: string[] = [];
    const numbers: number[] = [];
    for await (const event of cell.client.events(call.id)) {
      numbers.push(event.seq);
      if (event.event === "progress") {
        told.push(String(event.data.text));
        if (told.length === 5) {
          way.open();
        }
      }
    }
    expect(told).toEqual(["step 1", "step 2", "step 3", "step 4", "step 5"]);
    expect(numbers).toEqual([...numbers].sort((a, b) => a - b));
    expect(new Set(numbers).size).toBe(numbers.length);
  }),

  scenario(["X7", "R7"], "a retryable failure of a repeatable tool is tried again; a business failure is not", async (cell) => {
    const binding = cell.name("retries");
    let tries = 0;
    const flaky = defineTool({
      name: "flaky",
      description: "Fails twice.",
      input: { type: "object" },
      idempotent: true,
      async run() {
        tries += 1;
        if (tries < 3) {
          throw new ToolError("upstream_busy", "try later", { retryable: true, retryAfterSeconds: 0.05 });
        }
        return tries;
      },
    });
    const refusing = defineTool({
      name: "refusing",
      description: "Refuses.",
      input: { type: "object" },
      idempotent: true,
      run: async () => Promise.reject(new ToolError("out_of_stock", "none left")),
    });
    await cell.runner({ binding, tools: [flaky, refusing] });
    expect(await cell.client.call({ toolset: binding, tool: "flaky", arguments: {} })).toMatchObject({
      state: "succeeded",
      result: 3,
      attempt: 3,
    });
    const refused = await cell.client.call({ toolset: binding, tool: "refusing", arguments: {} });
    expect(refused).toMatchObject({ state: "failed", attempt: 1, error: { code: "out_of_stock", message: "none left", retryable: false } });
  }),

  scenario(["R7"], "a handler that throws fails the call with the error's type and message, and no stack", async (cell) => {
    const binding = cell.name("throws");
    const tool = defineTool({
      name: "bad",
      description: "Throws.",
      input: { type: "object" },
      run: async () => Promise.reject(new RangeError("too far")),
    });
    const odd = defineTool({
      name: "odd",
      description: "Returns what JSON cannot hold.",
      input: { type: "object" },
      run: async () => ({ list: [1, { big: 10n }] }),
    });
    await cell.runner({ binding, tools: [tool, odd] });
    const call = await cell.client.call({ toolset: binding, tool: "bad", arguments: {} });
    expect(call).toMatchObject({ state: "failed", error: { code: "handler_error", retryable: false } });
    expect(call.error?.message).toContain("RangeError");
    expect(call.error?.message).toContain("too far");
    expect(JSON.stringify(call)).not.toMatch(/\.js:\d+/);
    const typed = await cell.client.call({ toolset: binding, tool: "odd", arguments: {} });
    expect(typed).toMatchObject({ state: "failed", error: { code: "result_not_json" } });
    expect(typed.error?.message).toContain("/list/1/big");
  }),

  scenario(
    ["R9"],
    "a result and arguments over their limits are typed errors that name the tool, the bytes and the limit",
    async (cell) => {
      const binding = cell.name("large");
      const tool = defineTool({ name: "flood", description: "Floods.", input: TEXT_INPUT, run: async () => "x".repeat(17_000_000) });
      await cell.runner({ binding, tools: [tool] });
      const call = await cell.client.call({ toolset: binding, tool: "flood", arguments: { text: "" } });
      expect(call).toMatchObject({ state: "failed", error: { code: "result_too_large", retryable: false } });
      expect(call.error?.message).toMatch(/flood.*17000002|17000002.*flood/);
      const atLimit = 262_144 - '{"text":""}'.length;
      expect((await cell.client.call({ toolset: binding, tool: "flood", arguments: { text: "x".repeat(atLimit) } })).error?.code).toBe(
        "result_too_large",
      );
      await expect(
        cell.client.call({ toolset: binding, tool: "flood", arguments: { text: "x".repeat(atLimit + 1) } }),
      ).rejects.toMatchObject({ code: "arguments_too_large", status: 413 });
    },
  ),

  scenario(["L7"], "a result over 256 KiB is stored whole and read in pages that split no character", async (cell) => {
    const binding = cell.name("blobs");
    const text = "é€😀".repeat(50_000);
    const tool = defineTool({ name: "much", description: "Much.", input: { type: "object" }, run: async () => text });
    await cell.runner({ binding, tools: [tool] });
    const call = await cell.client.call({ toolset: binding, tool: "much", arguments: {} });
    expect(call.state).toBe("succeeded");
    expect(call.result).toBeUndefined();
    expect(call.result_ref).toBe(`/v1/calls/${call.id}/result`);
    expect(call.model_result?.truncated).toBe(true);
    expect(call.model_result?.bytes_after).toBeLessThanOrEqual(16_384);
    let whole = "";
    let offset = 0;
    for (let pages = 0; pages < 100; pages += 1) {
      const page = await cell.http("GET", `/v1/calls/${call.id}/result?offset=${offset}&max_bytes=100001`);
      whole += page.body.text as string;
      offset = page.body.next_offset as number;
      if (page.body.eof === true) {
        break;
      }
    }
    expect(createHash("sha256").update(whole).digest("hex")).toBe(createHash("sha256").update(JSON.stringify(text)).digest("hex"));
  }),

  scenario(["K1", "K2"], "a cancel before the grant settles at once, and after it reaches the handler's signal", async (cell) => {
    const binding = cell.name("cancels");
    const way = gate();
    let reason: unknown;
    await cell.runner({ binding, tools: [gatedTool(way, { onAbort: (why) => (reason = why) })], concurrency: 1 });
    const running = await cell.client.start({ toolset: binding, tool: "gated", arguments: {} });
    await way.reached;
    const queued = await cell.client.start({ toolset: binding, tool: "gated", arguments: {} });
    const early = await cell.http("POST", `/v1/calls/${queued.id}/cancel`, {});
    expect(early).toMatchObject({ status: 200, body: { state: "cancelled", attempt: 0 } });
    const asked = await cell.http("POST", `/v1/calls/${running.id}/cancel`, { reason: "no longer needed" });
    expect([200, 202]).toContain(asked.status);
    const cancelled = await cell.client.get(running.id, { waitMs: 10_000 });
    expect(cancelled).toMatchObject({ state: "cancelled", error: { code: "call_cancelled" } });
    expect(reason).toMatchObject({ code: "cancelled" });
    const again = await cell.http("POST", `/v1/calls/${running.id}/cancel`, {});
    expect(again).toMatchObject({ status: 200, body: { state: "cancelled" } });
  }),

  scenario(["K2", "G5"], "what cannot be cancelled says so; killnowait settles it, and its late receipt is evidence", async (cell) => {
    const binding = cell.name("stubborn");
    const way = gate();
    await cell.runner({ binding, tools: [gatedTool(way, { cancellable: false })] });
    const call = await cell.client.start({ toolset: binding, tool: "gated", arguments: {} });
    await way.reached;
    expect(await cell.http("POST", `/v1/calls/${call.id}/cancel`, { mode: "kill" })).toMatchObject({
      status: 409,
      body: { error: { code: "not_cancellable" } },
    });
    expect(await cell.http("POST", `/v1/calls/${call.id}/cancel`, { mode: "skip" })).toMatchObject({
      status: 200,
      body: { state: "cancelled" },
    });
    way.open();
    await eventually("the late receipt", async () => {
      const events = await cell.http("GET", `/v1/calls/${call.id}/events`);
      return (events.body.data as { event: string }[]).at(-1)?.event === "late_receipt";
    });
    expect((await cell.client.get(call.id)).state).toBe("cancelled");
  }),
];
