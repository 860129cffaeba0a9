/** Submissions across the death of runners and brokers (X5). */
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { defineTool } from "@toolrunner/runner-sdk";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { eventually } from "../kit/eventually.js";
import { startTcpProxy } from "../kit/tcp-proxy.js";
import { startTwoBrokers, type TwoBrokers } from "./two-brokers.js";

const PROGRAM = fileURLToPath(new URL("../../fixtures/submitter.mjs", import.meta.url));
const submit = defineTool({
  name: "submit",
  description: "Submits.",
  input: { type: "object" },
  resultSemantics: "submission",
  run: (_args, ctx) => ctx.submit({ fence: ctx.fence }),
});

let brokers: TwoBrokers;
let folder: string;
beforeAll(async () => {
  brokers = await startTwoBrokers();
  await brokers.publish("jobs", [submit]);
  folder = await mkdtemp(join(tmpdir(), "toolrunner-submissions-"));
}, 60_000);
afterAll(async () => {
  await brokers.close();
  await rm(folder, { recursive: true, force: true });
});

/** A runner in a process of its own; `settle.json` in its folder makes it settle what the file says, and write `settled`. */
async function startSubmitter(url: string): Promise<{ kill9(): Promise<void> }> {
  const child = spawn(process.execPath, [PROGRAM], {
    env: { ...process.env, URL_OF_BROKER: url, TOKEN: brokers.token, FOLDER: folder },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const gone = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  await new Promise<void>((resolve, reject) => {
    child.stdout.once("data", () => resolve());
    void gone.then(() => reject(new Error("the runner ended before it was ready")));
  });
  return {
    async kill9() {
      child.kill("SIGKILL");
      await gone;
    },
  };
}

describe("a submitted call (X5)", () => {
  it("I7: gets the final receipt of a runner that was killed after it journaled it and before it could send it", async () => {
    const proxy = await startTcpProxy(Number(new URL(String(brokers.b.ready.ws)).port));
    const first = await startSubmitter(`ws://127.0.0.1:${proxy.port}/v1/runner`);
    const call = await brokers.atA.call({ toolset: "jobs", tool: "submit", arguments: {} });
    expect(call).toMatchObject({ state: "submitted" });
    proxy.hold(true);
    proxy.cut();
    // In one step: the runner looks for the file, and must not find half of it.
    await writeFile(join(folder, "settle.part"), JSON.stringify({ callId: call.id, result: { shipped: 1 } }));
    await rename(join(folder, "settle.part"), join(folder, "settle.json"));
    await eventually("the durable receipt", async () => (existsSync(join(folder, "settled")) ? true : undefined));
    await first.kill9();
    expect(readFileSync(join(folder, "journal"), "utf8")).toContain("shipped");
    expect((await brokers.atA.get(call.id)).state).toBe("submitted");
    const second = await startSubmitter(String(brokers.b.ready.ws));
    expect(await brokers.atA.settled(call.id)).toMatchObject({ state: "succeeded", result: { shipped: 1 } });
    await second.kill9();
    await proxy.close();
  }, 60_000);

  it("is settled by the binding's key when its runner never comes back; other bindings and agents' keys are turned away", async () => {
    const runner = await brokers.runner(brokers.b, "grpc", [submit]);
    const call = await brokers.atA.call({ toolset: "jobs", tool: "submit", arguments: {} });
    await runner.stop();
    await brokers.http(brokers.a, "PUT", "/v1/bindings/other", { name: "Other", kind: "backend" });
    const other = String((await brokers.http(brokers.a, "POST", "/v1/bindings/other/keys", {})).body.key);
    const address = `/v1/calls/${call.id}`;
    const receipt = { outcome: "failed", error: { code: "no_stock", message: "none left" } };
    const unknown = await brokers.http(brokers.b, "POST", "/v1/calls/call_aaaaaaaaaaaaaaaaaaaaaaaaaa/receipt", receipt, other);
    const walled = await brokers.http(brokers.b, "POST", `${address}/receipt`, receipt, other);
    const withoutId = ({ status, body }: typeof walled) => JSON.stringify([status, { ...body, request_id: "" }]);
    expect(walled.status).toBe(404);
    expect(withoutId(walled)).toBe(withoutId(unknown));
    expect(withoutId(await brokers.http(brokers.b, "POST", `${address}/updates`, { text: "x" }, other))).toBe(withoutId(unknown));
    expect((await brokers.http(brokers.b, "POST", `${address}/receipt`, receipt)).status).toBe(401);
    expect((await brokers.http(brokers.b, "GET", address, undefined, brokers.token)).status).toBe(401);
    // At the broker that does not drive the call, and at once from both.
    const answers = await Promise.all(
      [brokers.a, brokers.b, brokers.a, brokers.b].map((broker) =>
        brokers.http(broker, "POST", `${address}/receipt`, receipt, brokers.token),
      ),
    );
    expect(new Set(answers.map((answer) => JSON.stringify(answer))).size).toBe(1);
    expect(answers[0]).toMatchObject({ status: 200, body: { state: "failed", outcome: "failed" } });
    expect(await brokers.atB.settled(call.id)).toMatchObject({ state: "failed", error: { code: "no_stock", message: "none left" } });
  }, 60_000);

  it("of two outcomes that come at once from two brokers takes one, and says so to the other", async () => {
    const runner = await brokers.runner(brokers.b, "ws", [submit], { concurrency: 20 });
    const calls = await Promise.all(Array.from({ length: 20 }, () => brokers.atA.call({ toolset: "jobs", tool: "submit", arguments: {} })));
    for (const { id } of calls) {
      const [one, two] = await Promise.all(
        [brokers.a, brokers.b].map((broker, index) =>
          brokers.http(broker, "POST", `/v1/calls/${id}/receipt`, { outcome: "succeeded", result: index }, brokers.token),
        ),
      );
      expect([one?.status, two?.status].sort()).toEqual([200, 409]);
      expect((await brokers.atA.settled(id)).result).toBe(one?.status === 200 ? 0 : 1);
    }
    await runner.stop();
  }, 60_000);

  it("B1: goes on when the broker that drives it is killed: updates and the final receipt are taken by the other", async () => {
    const runner = await brokers.runner(brokers.b, "ws", [submit]);
    const call = await brokers.atA.call({ toolset: "jobs", tool: "submit", arguments: {} });
    expect(call.state).toBe("submitted");
    await runner.update(call.id, { text: "before" });
    await brokers.a.kill9();
    const killedAt = performance.now();
    await runner.update(call.id, { text: "after" });
    console.log(`an update was stored ${Math.round(performance.now() - killedAt)} ms after the driver of its call was killed`);
    expect(performance.now() - killedAt).toBeLessThan(20_000);
    await runner.settle(call.id, { kind: "succeeded", result: "whole" });
    expect(await brokers.atB.settled(call.id)).toMatchObject({ state: "succeeded", result: "whole" });
    const { data } = await brokers.atB.listEvents(call.id);
    expect(data.filter(({ event }) => event === "progress").map((event) => event.data)).toEqual([{ text: "before" }, { text: "after" }]);
    await runner.stop();
  }, 60_000);
});
