/** Calls that wait their turn. */
import { defineTool } from "@toolrunner/runner-sdk";
import { expect } from "vitest";
import { scenario } from "../scenario.js";
import { gate, gatedTool, publish } from "./support.js";

export const ORDER_SCENARIOS = [
  scenario(["X8", "B5"], "a binding's limits hold calls back, then refuse them with 429; a known key gets its call", async (cell) => {
    const binding = cell.name("limits");
    const way = gate();
    await publish(cell, binding, "backend", [{ name: "gated", input_schema: { type: "object" }, cancellable: true }]);
    const limits = { concurrency: 1, queue: 1 };
    const saved = await cell.http("PUT", `/v1/bindings/${binding}`, { name: binding, kind: "backend", limits });
    expect(saved).toMatchObject({ status: 200, body: { limits } });
    await cell.runner({ binding, tools: [gatedTool(way)] });
    const body = { toolset: binding, tool: "gated", arguments: {} };
    const first = await cell.client.start({ ...body, idempotencyKey: `${binding}_1` });
    await way.reached;
    const second = await cell.client.start({ ...body, idempotencyKey: `${binding}_2` });
    expect(second).toMatchObject({ state: "queued", waiting_for: "capacity" });
    const refused = await cell.http("POST", "/v1/calls", { ...body, idempotency_key: `${binding}_3` });
    expect(refused).toMatchObject({ status: 429, body: { error: { type: "rate_limit_error", code: "queue_full" } } });
    expect((await cell.client.start({ ...body, idempotencyKey: `${binding}_2` })).id).toBe(second.id);
    way.open();
    for (const { id } of [first, second]) {
      expect((await cell.client.get(id, { waitMs: 10_000 })).state).toBe("succeeded");
    }
    const wrong = await cell.http("PUT", `/v1/bindings/${binding}`, {
      name: binding,
      kind: "backend",
      limits: { concurrency: 0, rate: 1 },
    });
    expect(wrong.status).toBe(400);
  }),

  scenario(["X10"], "calls with the same ordering key run one at a time, in order, and others pass them by", async (cell) => {
    const binding = cell.name("order");
    const way = gate();
    const ran: number[] = [];
    let at = 0;
    let most = 0;
    const note = defineTool({
      name: "note",
      description: "Notes its number.",
      input: { type: "object", properties: { n: { type: "integer" } }, required: ["n"] },
      async run({ n }: { readonly n: number }) {
        at += 1;
        most = Math.max(most, at);
        await new Promise((resolve) => setImmediate(resolve));
        ran.push(n);
        at -= 1;
        return n;
      },
    });
    await publish(cell, binding, "backend", [
      { name: "gated", input_schema: { type: "object" }, cancellable: true },
      { name: "note", input_schema: { type: "object" } },
    ]);
    await cell.runner({ binding, tools: [gatedTool(way), note] });
    const orderingKey = cell.name("customer_7");
    await cell.client.start({ toolset: binding, tool: "gated", arguments: {}, orderingKey });
    await way.reached;
    const numbers = [1, 2, 3, 4, 5, 6];
    const calls: string[] = [];
    for (const n of numbers) {
      const call = await cell.client.start({ toolset: binding, tool: "note", arguments: { n }, orderingKey });
      expect(call).toMatchObject({ state: "queued", waiting_for: "order" });
      calls.push(call.id);
    }
    // Another key, and none.
    expect(
      await cell.client.call({ toolset: binding, tool: "note", arguments: { n: 100 }, orderingKey: `${orderingKey}_other` }),
    ).toMatchObject({
      state: "succeeded",
    });
    expect(await cell.client.call({ toolset: binding, tool: "note", arguments: { n: 200 } })).toMatchObject({ state: "succeeded" });
    expect(ran).toEqual([100, 200]);
    way.open();
    const settled = await Promise.all(calls.map((id) => cell.client.get(id, { waitMs: 10_000 })));
    expect(settled.map(({ result }) => result)).toEqual(numbers);
    expect(ran.slice(2)).toEqual(numbers);
    expect(most).toBe(1);
  }),
];
