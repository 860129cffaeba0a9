import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { eventually } from "../kit/eventually.js";
import { createStage, type Stage } from "./stage.js";

let stage: Stage;
beforeEach(async () => {
  stage = await createStage();
});
afterEach(() => stage.close());

async function call(broker: Awaited<ReturnType<Stage["dev"]>>, tool: string, more: Record<string, unknown> = {}): Promise<string> {
  const made = await stage.http(broker, "POST", "/v1/calls", { toolset: "work", tool, arguments: { n: 1 }, ...more });
  expect(made.status, JSON.stringify(made.body)).toBe(202);
  return String(made.body.id);
}

describe("kill -9 of the embedded broker with calls queued and running", () => {
  it("settles running ones from the runner that lived through it, and runs queued ones (I9)", async () => {
    const first = await stage.dev();
    const token = String(first.ready.runner_token);
    const port = new URL(String(first.ready.http)).port;
    const runner = await stage.runner({ url: String(first.ready.ws), token, journal: "journal", runnerId: "survivor" });
    const running = await call(first, "charge");
    await eventually("the handler to start", () => stage.starts().length === 1);
    const saved = await stage.http(first, "PUT", "/v1/toolsets/later", {
      base_version: 0,
      tools: [{ name: "lookup", version: "9", description: "Nobody has it yet.", input_schema: { type: "object" }, binding: "work" }],
    });
    expect(saved.status).toBe(201);
    const queued = await call(first, "lookup", { toolset: "later" });
    await first.kill9();

    const second = await stage.dev(Number(port));
    expect(second.ready.agent_key).toBe(first.ready.agent_key);
    expect(await stage.http(second, "GET", `/v1/calls/${queued}`)).toMatchObject({ status: 202, body: { state: "queued" } });
    await stage.openGate();
    const settled = await stage.http(second, "GET", `/v1/calls/${running}?wait_seconds=20`);
    expect(settled.body).toMatchObject({ state: "succeeded", attempt: 1, result: { n: 1, pid: runner.pid } });
    expect(stage.starts().length).toBe(1);

    const late = await stage.runner({ url: String(second.ready.ws), token, journal: "journal-2", runnerId: "late", version: "9" });
    const ran = await stage.http(second, "GET", `/v1/calls/${queued}?wait_seconds=20`);
    expect(ran.body).toMatchObject({ state: "succeeded", attempt: 1, result: { pid: late.pid } });
  }, 60_000);

  it("with the runner killed too, grants repeatable ones again and leaves the others to be reconciled", async () => {
    const first = await stage.dev();
    const token = String(first.ready.runner_token);
    const runner = await stage.runner({ url: String(first.ready.grpc), token, journal: "journal", runnerId: "worker" });
    const charge = await call(first, "charge");
    const lookup = await call(first, "lookup");
    await eventually("both handlers to start", () => stage.starts().length === 2);
    await Promise.all([first.kill9(), runner.kill9()]);

    const second = await stage.dev();
    await stage.runner({ url: String(second.ready.grpc), token, journal: "journal", runnerId: "worker" });
    await stage.openGate();
    const repeated = await stage.http(second, "GET", `/v1/calls/${lookup}?wait_seconds=30`);
    expect(repeated.body).toMatchObject({ state: "succeeded", attempt: 2 });
    const unknown = await stage.http(second, "GET", `/v1/calls/${charge}?wait_seconds=30`);
    expect(unknown.body).toMatchObject({ state: "needs_reconciliation", attempt: 1 });
    expect(stage.starts().filter((start) => start.call === charge).length).toBe(1);
    expect(
      stage
        .starts()
        .filter((start) => start.call === lookup)
        .map(({ attempt }) => attempt),
    ).toEqual([1, 2]);
  }, 90_000);

  it("R2: a runner killed after its handler ended delivers the result from its journal when it starts again", async () => {
    const first = await stage.dev();
    const token = String(first.ready.runner_token);
    const runner = await stage.runner({ url: String(first.ready.ws), token, journal: "journal", runnerId: "worker" });
    const charge = await call(first, "charge");
    await eventually("the handler to start", () => stage.starts().length === 1);
    // The broker is away while the handler ends, so that the receipt stays in the journal.
    await first.kill9();
    await stage.openGate();
    await eventually("the receipt in the journal", () => stage.journalSays("journal", "finished"));
    await runner.kill9();

    const second = await stage.dev();
    await stage.runner({ url: String(second.ready.ws), token, journal: "journal", runnerId: "worker" });
    const settled = await stage.http(second, "GET", `/v1/calls/${charge}?wait_seconds=30`);
    expect(settled.body).toMatchObject({ state: "succeeded", attempt: 1, result: { pid: runner.pid } });
    expect(stage.starts().length).toBe(1);
  }, 60_000);
});
