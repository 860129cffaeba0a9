/** Which runner gets a call, and what happens while none does. */
import { allow, forbid } from "@toolrunner/runner-sdk";
import { expect } from "vitest";
import { eventually } from "../../kit/eventually.js";
import { oncePerLedger, scenario } from "../scenario.js";
import { echoTool, gate, gatedTool, publish, TEXT_INPUT } from "./support.js";

export const ROUTING_SCENARIOS = [
  scenario(["X3"], "a call waits for a runner, then for its exact handler version, and says which", async (cell) => {
    const binding = cell.name("versions");
    await publish(cell, binding, "backend", [{ name: "echo", version: "2", input_schema: TEXT_INPUT, idempotent: true }]);
    const call = await cell.client.start({ toolset: binding, tool: "echo", arguments: { text: "v2" } });
    expect(call).toMatchObject({ state: "queued", waiting_for: "runner" });
    const old = echoTool({ name: "other", version: "1", by: "old" });
    await cell.runner({ binding, tools: [old.tool] });
    expect((await cell.client.get(call.id)).waiting_for).toBe("handler");
    await eventually("the waiting event", async () => {
      const events = await cell.http("GET", `/v1/calls/${call.id}/events`);
      return (events.body.data as { event: string }[]).some((event) => event.event === "waiting");
    });
    await cell.runner({ binding, tools: [echoTool({ version: "2", by: "new" }).tool] });
    const settled = await cell.client.get(call.id, { waitMs: 10_000 });
    expect(settled).toMatchObject({ state: "succeeded", result: { text: "v2", by: "new" } });
    expect(old.runs()).toBe(0);
  }),

  scenario(["X3"], "a call waits for a free slot and runs when one is freed", async (cell) => {
    const binding = cell.name("slots");
    const way = gate();
    await cell.runner({ binding, tools: [gatedTool(way), echoTool().tool], concurrency: 1 });
    const first = await cell.client.start({ toolset: binding, tool: "gated", arguments: {} });
    await way.reached;
    const second = await cell.client.start({ toolset: binding, tool: "echo", arguments: { text: "next" } });
    expect(second).toMatchObject({ state: "queued", waiting_for: "capacity" });
    way.open();
    expect((await cell.client.get(first.id, { waitMs: 10_000 })).state).toBe("succeeded");
    expect(await cell.client.get(second.id, { waitMs: 10_000 })).toMatchObject({ state: "succeeded", result: { text: "next" } });
  }),

  scenario(
    ["X3"],
    "a call that no runner takes times out at its deadline",
    async (cell) => {
      const binding = cell.name("nobody");
      await publish(cell, binding, "backend", [{ name: "echo", input_schema: TEXT_INPUT }]);
      const call = await cell.client.call({ toolset: binding, tool: "echo", arguments: { text: "late" }, timeoutSeconds: 5 });
      expect(call).toMatchObject({ state: "timed_out", attempt: 0, error: { code: "call_timed_out" } });
      expect(call.model_result?.text.length).toBeGreaterThan(0);
    },
    oncePerLedger,
  ),

  scenario(["X4", "I8"], "a call for a subject goes only to runners of that subject", async (cell) => {
    const binding = cell.name("tabs");
    await publish(cell, binding, "browser", [{ name: "echo", input_schema: TEXT_INPUT, idempotent: true }]);
    const ana = echoTool({ by: "ana" });
    const ben = echoTool({ by: "ben" });
    await cell.runner({ binding, subject: "user_ana", tools: [ana.tool] });
    await cell.runner({ binding, subject: "user_ben", tools: [ben.tool] });
    const calls = await Promise.all(
      Array.from({ length: 20 }, (_, index) =>
        cell.client.call({
          toolset: binding,
          tool: "echo",
          arguments: { text: String(index) },
          subject: index % 2 === 0 ? "user_ana" : "user_ben",
        }),
      ),
    );
    expect(calls.map((call) => (call.result as { by: string }).by)).toEqual(calls.map((_, index) => (index % 2 === 0 ? "ana" : "ben")));
    const nobody = await cell.client.start({ toolset: binding, tool: "echo", arguments: { text: "x" }, subject: "user_eve" });
    expect(nobody).toMatchObject({ state: "queued", waiting_for: "runner" });
    await cell.client.cancel(nobody.id);
    await expect(cell.client.call({ toolset: binding, tool: "echo", arguments: { text: "x" } })).rejects.toMatchObject({
      code: "subject_required",
      status: 400,
    });
  }),

  scenario(["X4"], "a backend binding serves calls of every subject", async (cell) => {
    const binding = cell.name("backend");
    await cell.runner({ binding, tools: [echoTool().tool] });
    const calls = await Promise.all(
      ["a", "b"].map((subject) => cell.client.call({ toolset: binding, tool: "echo", arguments: { text: subject }, subject })),
    );
    expect(calls.map((call) => call.state)).toEqual(["succeeded", "succeeded"]);
  }),

  scenario(["R11"], "authorize runs before the handler: forbid settles as denied, and the handler never starts", async (cell) => {
    const binding = cell.name("guarded");
    const echo = echoTool();
    await cell.runner({
      binding,
      tools: [echo.tool],
      authorize: (ctx) => (ctx.subject === "good" ? allow() : forbid("this account is closed")),
    });
    const denied = await cell.client.call({ toolset: binding, tool: "echo", arguments: { text: "x" }, subject: "bad" });
    expect(denied).toMatchObject({ state: "denied", error: { code: "forbidden" } });
    expect(denied.error?.message).toContain("this account is closed");
    const events = await cell.http("GET", `/v1/calls/${denied.id}/events`);
    expect((events.body.data as { event: string }[]).map((event) => event.event)).not.toContain("started");
    expect(echo.runs()).toBe(0);
    expect((await cell.client.call({ toolset: binding, tool: "echo", arguments: { text: "x" }, subject: "good" })).state).toBe("succeeded");
  }),
];
