import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { GrantPhase } from "@toolrunner/proto";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { until } from "../runner.test.kit.js";
import { grpcBroker, type SocketBroker } from "./socket-broker.test.kit.js";

const SCRIPT = fileURLToPath(new URL("./crash.test.kit.js", import.meta.url));

let folder: string;
let socket: SocketBroker;
const children: ChildProcess[] = [];
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "toolrunner-crash-"));
  socket = await grpcBroker();
});
afterEach(async () => {
  await Promise.all(children.splice(0).map(kill));
  await socket.stop();
  rmSync(folder, { recursive: true, force: true });
});

function start(): ChildProcess & { readonly errors: () => string } {
  const child = spawn(process.execPath, [SCRIPT, socket.url, join(folder, "journal"), join(folder, "runs")], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  children.push(child);
  let errors = "";
  child.stderr?.on("data", (data: Buffer) => {
    errors += data.toString();
  });
  return Object.assign(child, { errors: () => errors });
}

async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGKILL");
  await ended;
}

async function session() {
  const next = await socket.broker.nextSession();
  const hello = await next.welcome();
  return Object.assign(next, { report: new Map(hello.held.map(({ callId, phase }) => [callId, phase])), greeting: hello });
}

const runs = () => (existsSync(join(folder, "runs")) ? readFileSync(join(folder, "runs"), "utf8").split("\n").filter(Boolean) : []);

describe("a runner that is killed with -9 (R2, I7)", () => {
  it("sends the receipt of a finished call again from its journal, and does not run the call again", async () => {
    const first = start();
    const before = await session();
    const grant = before.grant({ tool: "work" });
    const receipt = await before.next("receipt");
    await kill(first);
    start();
    const after = await session();
    expect(after.greeting).toMatchObject({ runnerId: before.greeting.runnerId, journalId: before.greeting.journalId });
    expect(after.report).toEqual(new Map([[grant.callId, GrantPhase.FINISHED]]));
    const again = await after.next("receipt");
    expect(again).toEqual(receipt);
    after.grant({ ...grant, sessionEpoch: after.epoch });
    expect((await after.next("receipt")).digest).toBe(receipt.digest);
    expect(runs()).toEqual([grant.callId]);
  });

  it("says of a call that ran that its outcome is unknown, and never starts that grant again", async () => {
    const first = start();
    const before = await session();
    const grant = before.grant({ tool: "work", argumentsJson: '{"wait":true}' });
    await before.next("started");
    await kill(first);
    start();
    const after = await session();
    expect(after.report).toEqual(new Map([[grant.callId, GrantPhase.OUTCOME_UNKNOWN]]));
    after.grant({ ...grant, sessionEpoch: after.epoch });
    expect(await after.next("revokeAnswer")).toMatchObject({ phase: GrantPhase.OUTCOME_UNKNOWN, journalId: before.greeting.journalId });
    expect(runs()).toEqual([grant.callId]);
  });

  it("loses no result and starts nothing twice, at whatever moment it is killed", async () => {
    const calls: string[] = [];
    const receipts = new Map<string, number>();
    const unknown = new Set<string>();
    for (let round = 0; round < 6; round++) {
      const child = start();
      const current = await session();
      for (const [callId, phase] of current.report) if (phase === GrantPhase.OUTCOME_UNKNOWN) unknown.add(callId);
      const from = calls.length;
      // As many as the runner takes at once: what ends before the kill depends on the moment.
      for (let index = 0; index < 16; index++) calls.push(current.grant({ tool: "work" }).callId);
      const ending = new Promise<void>((resolve) => child.once("exit", () => resolve()));
      if (round < 5) {
        await current.next("started");
        for (let yields = 0; yields < round * 3; yields++) await new Promise((resolve) => setImmediate(resolve));
        child.kill("SIGKILL");
        await ending;
        await current.channel.closed;
        await current.ended;
      } else {
        const own = calls.slice(from);
        await until("all receipts of the last round", () => {
          const heard = new Set(current.all("receipt").map(({ callId }) => callId));
          return own.every((callId) => heard.has(callId));
        });
      }
      for (const receipt of current.all("receipt")) receipts.set(receipt.callId, (receipts.get(receipt.callId) ?? 0) + 1);
    }
    const started = runs();
    expect(new Set(started).size).toBe(started.length);
    // What was seen to start has its receipt, or was reported as unknown.
    for (const callId of started) expect(receipts.has(callId) || unknown.has(callId), `${callId} vanished`).toBe(true);
  });

  it("gives its journal to the next process, but not while it lives", async () => {
    const first = start();
    await session();
    const second = start();
    const code = await new Promise((resolve) => second.once("exit", resolve));
    expect(code).toBe(7);
    expect(second.errors()).toContain(`used by process ${first.pid}`);
    await kill(first);
    start();
    await session();
  });
});
