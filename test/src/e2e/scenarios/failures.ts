/** Sessions that break, runners that vanish, outcomes that nobody knows. */
import { expect } from "vitest";
import { eventually } from "../../kit/eventually.js";
import { scenario } from "../scenario.js";
import { echoTool, gate, gatedTool } from "./support.js";

export const FAILURE_SCENARIOS = [
  scenario(["R1", "I7", "I3"], "a call goes on when its session is cut, and its result is delivered on the next one", async (cell) => {
    const binding = cell.name("cut");
    const way = gate();
    let starts = 0;
    const line = await cell.line();
    await cell.runner({ binding, line, tools: [gatedTool(way, { onRun: () => (starts += 1) })] });
    const call = await cell.client.start({ toolset: binding, tool: "gated", arguments: {} });
    await way.reached;
    line.hold(true);
    line.cut();
    // The handler ends while there is no session: the receipt has to wait in the journal.
    way.open();
    line.hold(false);
    expect(await cell.client.get(call.id, { waitMs: 20_000 })).toMatchObject({ state: "succeeded", result: "done", attempt: 1 });
    expect(starts).toBe(1);
  }),

  scenario(["R1", "R3"], "a runner redials after its session was cut, and serves again", async (cell) => {
    const binding = cell.name("redial");
    const line = await cell.line();
    const runner = await cell.runner({ binding, line, tools: [echoTool().tool] });
    for (let round = 0; round < 2; round += 1) {
      line.cut();
      await eventually("the runner to notice", () => runner.state.kind !== "ready");
      await eventually("the runner to be back", () => runner.state.kind === "ready", 15_000);
      expect((await cell.client.call({ toolset: binding, tool: "echo", arguments: { text: `round ${round}` } })).state).toBe("succeeded");
    }
  }),

  scenario(["R3"], "a second runner with the same id takes over, and the first is refused and does not redial", async (cell) => {
    const binding = cell.name("twins");
    const first = await cell.runner({ binding, runnerId: "the_one", tools: [echoTool({ by: "first" }).tool] });
    await cell.runner({ binding, runnerId: "the_one", tools: [echoTool({ by: "second" }).tool] });
    await eventually("the first to be refused", () => first.state.kind === "refused");
    expect(first.state).toMatchObject({ kind: "refused", code: "superseded" });
    expect((await cell.client.call({ toolset: binding, tool: "echo", arguments: { text: "x" } })).result).toMatchObject({ by: "second" });
  }),

  scenario(
    ["G6", "I6", "I3"],
    "a runner that vanishes leaves a call that is not safe to repeat to be reconciled; it is not started again",
    async (cell) => {
      const binding = cell.name("vanish");
      const way = gate();
      let starts = 0;
      const line = await cell.line();
      await cell.runner({ binding, line, tools: [gatedTool(way, { onRun: () => (starts += 1) })] });
      const pending = cell.client.call({ toolset: binding, tool: "gated", arguments: {} });
      await way.reached;
      line.hold(true);
      line.cut();
      const other = gate();
      await cell.runner({ binding, tools: [gatedTool(other, { onRun: () => (starts += 1) })] });
      const call = await pending;
      expect(call.state).toBe("needs_reconciliation");
      expect(call.model_result?.text).toMatch(/unknown/i);
      expect(starts).toBe(1);
      const listed = await cell.http("GET", `/v1/calls?state=needs_reconciliation&toolset=${binding}`);
      expect((listed.body.data as { id: string }[]).map(({ id }) => id)).toEqual([call.id]);
      expect(await cell.http("POST", `/v1/calls/${call.id}/reconcile`, { outcome: "applied", result: "by hand" })).toMatchObject({
        status: 200,
        body: { state: "succeeded", result: "by hand" },
      });
      expect(await cell.http("POST", `/v1/calls/${call.id}/reconcile`, { outcome: "abandon" })).toMatchObject({
        status: 409,
        body: { error: { code: "not_reconcilable" } },
      });
      way.open();
      line.hold(false);
      await eventually(
        "the late receipt",
        async () => {
          const events = await cell.http("GET", `/v1/calls/${call.id}/events`);
          return (events.body.data as { event: string }[]).at(-1)?.event === "late_receipt";
        },
        15_000,
      );
      expect((await cell.client.get(call.id)).state).toBe("succeeded");
    },
  ),

  scenario(["G5", "I4"], "the receipt of a runner that comes back settles a call that waits for reconciliation", async (cell) => {
    const binding = cell.name("return");
    const way = gate();
    const line = await cell.line();
    await cell.runner({ binding, line, tools: [gatedTool(way)] });
    const pending = cell.client.call({ toolset: binding, tool: "gated", arguments: {} });
    await way.reached;
    line.hold(true);
    line.cut();
    const call = await pending;
    expect(call.state).toBe("needs_reconciliation");
    way.open();
    line.hold(false);
    const settled = await eventually(
      "the receipt",
      async () => {
        const now = await cell.client.get(call.id);
        return now.state === "needs_reconciliation" ? undefined : now;
      },
      15_000,
    );
    expect(settled.state === "succeeded" || settled.state === "cancelled" || settled.state === "failed").toBe(true);
  }),

  scenario(["X7", "I3"], "a repeatable call of a vanished runner is given to another one", async (cell) => {
    const binding = cell.name("repeat");
    const way = gate();
    const line = await cell.line();
    await cell.runner({ binding, line, tools: [gatedTool(way, { idempotent: true })] });
    const call = await cell.client.start({ toolset: binding, tool: "gated", arguments: {} });
    await way.reached;
    line.hold(true);
    line.cut();
    const open = gate();
    open.open();
    await cell.runner({ binding, tools: [gatedTool(open, { idempotent: true })] });
    expect(await cell.client.get(call.id, { waitMs: 20_000 })).toMatchObject({ state: "succeeded", attempt: 2 });
    const events = await cell.http("GET", `/v1/calls/${call.id}/events`);
    const names = (events.body.data as { event: string }[]).map((event) => event.event);
    expect(names).toContain("lease_lost");
    expect(names).toContain("retry_scheduled");
  }),

  scenario(["K2"], "not_applied queues a reconciled call again while time and attempts are left", async (cell) => {
    const binding = cell.name("again");
    const way = gate();
    const line = await cell.line();
    await cell.runner({ binding, line, tools: [gatedTool(way)] });
    const pending = cell.client.call({ toolset: binding, tool: "gated", arguments: {} });
    await way.reached;
    line.hold(true);
    line.cut();
    const call = await pending;
    const open = gate();
    open.open();
    await cell.runner({ binding, tools: [gatedTool(open)] });
    expect((await cell.http("POST", `/v1/calls/${call.id}/reconcile`, { outcome: "not_applied", note: "looked" })).status).toBe(200);
    expect(await cell.client.get(call.id, { waitMs: 20_000 })).toMatchObject({ state: "succeeded", attempt: 2 });
  }),

  scenario(["I10"], "payloads never reach the broker's log", async (cell) => {
    const binding = cell.name("secrets");
    await cell.runner({ binding, tools: [echoTool().tool] });
    const marker = "MARKER-7f3a-payload";
    const call = await cell.client.call({ toolset: binding, tool: "echo", arguments: { text: marker } });
    await cell.http("POST", "/v1/calls", { toolset: binding, tool: "echo", arguments: { text: 1, [marker]: marker } });
    expect(cell.logged.length).toBeGreaterThan(0);
    expect(cell.logged.some((line) => line.includes(marker))).toBe(false);
    expect(cell.logged.some((line) => line.includes("test-agent-key") || line.includes("test-runner-key"))).toBe(false);
    expect(call.state).toBe("succeeded");
  }),
];
