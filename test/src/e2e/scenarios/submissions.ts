/** Submissions and their later news, batches. */
import { isSettled, ToolRunnerError } from "@toolrunner/agent-sdk";
import { defineTool, type SubmissionEnd, type Tool } from "@toolrunner/runner-sdk";
import { expect } from "vitest";
import { eventually } from "../../kit/eventually.js";
import { type Scenario, scenario } from "../scenario.js";
import { echoTool } from "./support.js";

/** Ends the turn with a handle. */
function submitTool(more: { readonly submissionTimeoutSeconds?: number } = {}): Tool {
  return defineTool({
    name: "submit",
    description: "Submits.",
    input: { type: "object" },
    output: { type: "object", properties: { shipped: { type: "boolean" } }, required: ["shipped"] },
    resultSemantics: "submission",
    ...more,
    run: async (_args: unknown, ctx) => ctx.submit({ ticket: 7, fence: ctx.fence }),
  });
}

const eventNames = (body: { readonly [key: string]: unknown }) => (body.data as { event: string }[]).map(({ event }) => event);

export const SUBMISSION_SCENARIOS: readonly Scenario[] = [
  scenario(["X5"], "a submission answers the turn with its handle and is settled later by its final receipt", async (cell) => {
    const binding = cell.name("jobs");
    const runner = await cell.runner({ binding, tools: [submitTool()] });
    const call = await cell.client.call({ toolset: binding, tool: "submit", arguments: {} });
    expect(call).toMatchObject({ state: "submitted", result: { ticket: 7 }, settled_at: null });
    await runner.settle(call.id, { kind: "succeeded", result: { shipped: true } });
    const settled = await eventually("the final receipt", async () => {
      const now = await cell.client.get(call.id);
      return now.state === "submitted" ? undefined : now;
    });
    expect(settled).toMatchObject({ state: "succeeded", result: { shipped: true } });
    const events = await cell.http("GET", `/v1/calls/${call.id}/events`);
    expect((events.body.data as { event: string }[]).map((event) => event.event)).toEqual([
      "requested",
      "queued",
      "granted",
      "started",
      "submitted",
      "settled",
    ]);
  }),

  scenario(["X5"], "updates and the final receipt come by the binding's key, and every repeat is answered the same", async (cell) => {
    const binding = cell.name("jobs");
    await cell.runner({ binding, tools: [submitTool()] });
    const call = await cell.client.call({ toolset: binding, tool: "submit", arguments: {} });
    const address = `/v1/calls/${call.id}`;
    const half = { text: "packed", percentage: 50, data: { box: 3 }, idempotency_key: "half" };
    const updated = await cell.http("POST", `${address}/updates`, half, "runner");
    expect(updated).toMatchObject({ status: 200, body: { event: "progress", data: { text: "packed", percentage: 50, data: { box: 3 } } } });
    expect(await cell.http("POST", `${address}/updates`, half, "runner")).toEqual(updated);
    expect(await cell.http("POST", `${address}/updates`, { ...half, percentage: 51 }, "runner")).toMatchObject({
      status: 409,
      body: { error: { code: "idempotency_conflict" } },
    });
    expect(await cell.http("POST", `${address}/updates`, {}, "runner")).toMatchObject({
      status: 400,
      body: { error: { code: "body_invalid" } },
    });
    const waiting = cell.client.settled(call.id);
    const followed: string[] = [];
    const following = (async () => {
      for await (const { event } of cell.client.events(call.id)) followed.push(event);
    })();
    const receipt = { outcome: "succeeded", result: { shipped: true } };
    const settled = await cell.http("POST", `${address}/receipt`, receipt, "runner");
    expect(settled).toMatchObject({ status: 200, body: { type: "receipt", call_id: call.id, outcome: "succeeded", state: "succeeded" } });
    expect(await cell.http("POST", `${address}/receipt`, receipt, "runner")).toEqual(settled);
    expect(await cell.http("POST", `${address}/receipt`, { outcome: "cancelled" }, "runner")).toMatchObject({
      status: 409,
      body: { error: { code: "receipt_conflict" } },
    });
    expect(await cell.http("POST", `${address}/updates`, half, "runner")).toEqual(updated);
    expect(await cell.http("POST", `${address}/updates`, { text: "late" }, "runner")).toMatchObject({
      status: 409,
      body: { error: { code: "call_settled" } },
    });
    expect(await waiting).toMatchObject({ state: "succeeded", result: { shipped: true } });
    await following;
    expect(followed).toEqual(["requested", "queued", "granted", "started", "submitted", "progress", "settled"]);
    expect(eventNames((await cell.http("GET", `${address}/events`)).body)).toEqual([...followed, "late_receipt"]);
  }),

  scenario(["X5"], "a runner's updates reach the agent in order, each once, also over a broken session", async (cell) => {
    const binding = cell.name("jobs");
    const line = await cell.line();
    const runner = await cell.runner({ binding, tools: [submitTool()], line });
    const call = await cell.client.call({ toolset: binding, tool: "submit", arguments: {} });
    await runner.update(call.id, { text: "first", percentage: 0 });
    line.hold(true);
    line.cut();
    await eventually("the loss of the session", async () => (runner.state.kind === "ready" ? undefined : true));
    const waiting = [1, 2, 3].map((number) => runner.update(call.id, { data: { number } }));
    line.hold(false);
    await Promise.all(waiting);
    await runner.settle(call.id, { kind: "succeeded", result: { shipped: true } });
    await cell.client.settled(call.id);
    const { data } = (await cell.http("GET", `/v1/calls/${call.id}/events`)).body as { data: { event: string; data: object }[] };
    expect(data.filter(({ event }) => event === "progress").map((event) => event.data)).toEqual([
      { text: "first", percentage: 0 },
      { data: { number: 1 } },
      { data: { number: 2 } },
      { data: { number: 3 } },
    ]);
    await expect(runner.update(call.id, { text: "late" })).rejects.toMatchObject({ code: "submission_settled" });
    await expect(runner.update("call_aaaaaaaaaaaaaaaaaaaaaaaaaa", { text: "?" })).rejects.toMatchObject({ code: "submission_unknown" });
  }),

  scenario(
    ["X5", "K1"],
    "the cancel of a submitted call reaches the signal of the runner that submitted it, also on a later session",
    async (cell) => {
      for (const mode of ["kill", "killnowait", "skip"] as const) {
        const binding = cell.name("jobs");
        let aborted: string | undefined;
        const ended: SubmissionEnd[] = [];
        const tool = defineTool({
          name: "submit",
          description: "Submits.",
          input: { type: "object" },
          resultSemantics: "submission",
          async run(_args: unknown, ctx) {
            ctx.signal.addEventListener("abort", () => {
              aborted = (ctx.signal.reason as { code: string }).code;
            });
            return ctx.submit(null);
          },
        });
        const line = await cell.line();
        const runner = await cell.runner({ binding, tools: [tool], line, onSubmissionEnded: (end) => ended.push(end) });
        const call = await cell.client.call({ toolset: binding, tool: "submit", arguments: {} });
        line.cut();
        await eventually("the loss of the session", async () => (runner.state.kind === "ready" ? undefined : true));
        await eventually("the next session", async () => (runner.state.kind === "ready" ? true : undefined));
        expect(await cell.client.cancel(call.id, { mode })).toMatchObject({ state: "cancelled" });
        if (mode === "skip") {
          // A session takes its frames in order: after this grant came and went, no revoke is on its way.
          await cell.client.call({ toolset: binding, tool: "submit", arguments: {} });
          expect([aborted, ended]).toEqual([undefined, []]);
        } else {
          await eventually("the abort", async () => aborted);
          expect([aborted, ended]).toEqual(["cancelled", [{ callId: call.id, tool: "submit", reason: "cancelled" }]]);
        }
        await runner.settle(call.id, { kind: "succeeded", result: 1 }).catch(() => undefined);
        expect(await cell.client.settled(call.id)).toMatchObject({ state: "cancelled" });
      }
    },
  ),

  scenario(
    ["X5"],
    "a submitted call without a final receipt is timed out after its tool's time, and the runner is told",
    async (cell) => {
      const binding = cell.name("jobs");
      const ended: SubmissionEnd[] = [];
      await cell.runner({ binding, tools: [submitTool({ submissionTimeoutSeconds: 5 })], onSubmissionEnded: (end) => ended.push(end) });
      const call = await cell.client.call({ toolset: binding, tool: "submit", arguments: {} });
      const toolset = (await cell.http("GET", `/v1/toolsets/${binding}`)).body as { tools: object[] };
      expect(toolset.tools).toMatchObject([{ result_semantics: "submission", submission_timeout_seconds: 5 }]);
      const settled = await cell.client.settled(call.id);
      expect(settled).toMatchObject({ state: "timed_out", error: { code: "call_timed_out" } });
      expect(Date.parse(settled.settled_at ?? "") - Date.parse(call.receipt?.received_at ?? "")).toBeGreaterThanOrEqual(5_000);
      await eventually("the runner's news of it", async () => ended[0]);
      expect(ended).toEqual([{ callId: call.id, tool: "submit", reason: "timed_out" }]);
    },
    (transport) => (transport === "grpc" || transport === "memory" ? undefined : "it waits for 5 s: two columns show it"),
  ),

  scenario(["X5", "X1"], "a final result is checked against the output schema, and the handle against nothing", async (cell) => {
    const binding = cell.name("jobs");
    const runner = await cell.runner({ binding, tools: [submitTool()] });
    const [first, second] = await Promise.all([1, 2].map(() => cell.client.call({ toolset: binding, tool: "submit", arguments: {} })));
    if (first === undefined || second === undefined) throw new Error("no calls");
    await runner.settle(first.id, { kind: "succeeded", result: { shipped: "yes" } });
    await cell.http("POST", `/v1/calls/${second.id}/receipt`, { outcome: "succeeded", result: 7 }, "runner");
    for (const { id } of [first, second]) {
      expect(await cell.client.settled(id)).toMatchObject({ state: "failed", error: { code: "result_invalid" } });
    }
  }),

  scenario(
    ["X5"],
    "a final receipt with the fence of an older grant is refused, and before the handle one needs the fence",
    async (cell) => {
      const binding = cell.name("jobs");
      let fence = 0;
      let submit: () => void = () => undefined;
      const tool = defineTool({
        name: "submit",
        description: "Submits, late.",
        input: { type: "object" },
        resultSemantics: "submission",
        async run(_args: unknown, ctx) {
          fence = ctx.fence;
          await new Promise<void>((resolve) => {
            submit = resolve;
          });
          return ctx.submit(null);
        },
      });
      await cell.runner({ binding, tools: [tool] });
      const { id } = await cell.client.start({ toolset: binding, tool: "submit", arguments: {} });
      await eventually("the handler's start", async () => (fence > 0 ? true : undefined));
      const settle = (more: object) => cell.http("POST", `/v1/calls/${id}/receipt`, { outcome: "succeeded", result: 1, ...more }, "runner");
      expect(await settle({})).toMatchObject({ status: 409, body: { error: { code: "not_submitted" } } });
      expect(await settle({ fence: fence + 1 })).toMatchObject({ status: 409, body: { error: { code: "fence_stale" } } });
      expect(await settle({ fence })).toMatchObject({ status: 200 });
      submit();
      expect(await cell.client.settled(id)).toMatchObject({ state: "succeeded", result: 1 });
    },
  ),

  scenario(["X11"], "a batch is up to 64 calls, each with its own key, answer or refusal, in order", async (cell) => {
    const binding = cell.name("batch");
    const { tool, runs } = echoTool();
    await cell.runner({ binding, tools: [tool], concurrency: 64 });
    const requests = Array.from({ length: 64 }, (_, index) => ({
      toolset: binding,
      tool: index === 7 ? "missing" : "echo",
      arguments: index === 9 ? { txet: "typo" } : { text: `number ${index}` },
      idempotencyKey: `${binding} ${index}`,
    }));
    const answers = await cell.client.batch(requests);
    expect(answers.map((answer) => (answer instanceof ToolRunnerError ? answer.code : (answer.result as { text: string }).text))).toEqual(
      requests.map((_request, index) => (index === 7 ? "tool_unknown" : index === 9 ? "arguments_invalid" : `number ${index}`)),
    );
    const ids = (list: typeof answers) => list.map((answer) => (answer instanceof ToolRunnerError ? answer.details : answer.id));
    const ran = runs();
    expect(ids(await cell.client.batch(requests))).toEqual(ids(answers));
    expect(runs()).toBe(ran);
    const single = await cell.client.call({
      toolset: binding,
      tool: "echo",
      arguments: { text: "number 3" },
      idempotencyKey: `${binding} 3`,
    });
    expect(single.id).toBe(answers[3] instanceof ToolRunnerError ? "" : answers[3]?.id);
    await expect(cell.client.batch([])).rejects.toMatchObject({ code: "options_invalid" });
  }),

  scenario(["X11", "B5"], "one slow call of a batch keeps no other, and the batch waits as long as it is told", async (cell) => {
    const binding = cell.name("batch");
    const { tool } = echoTool();
    await cell.runner({ binding, tools: [tool] });
    const calls = [
      { toolset: binding, tool: "echo", arguments: { text: "now" } },
      { toolset: binding, tool: "echo", arguments: { text: "elsewhere" }, idempotency_key: `${binding} k` },
      { toolset: binding, tool: "echo", arguments: { text: "another" }, idempotency_key: `${binding} k` },
    ];
    const { status, body } = await cell.http("POST", "/v1/calls:batch", { calls, wait_seconds: 10 });
    const data = body.data as { type: string; state?: string; error?: { code: string } }[];
    expect([status, data[0]?.state]).toEqual([200, "succeeded"]);
    // Two different requests with one key: one is the call, the other a conflict.
    expect(
      data
        .slice(1)
        .map((answer) => answer.state ?? answer.error?.code)
        .sort(),
    ).toEqual(["idempotency_conflict", "succeeded"]);
    expect(data.every(({ state }) => state === undefined || isSettled({ state: state as "succeeded" }))).toBe(true);
  }),
];
