/** `toolrunner run` from the outside: real processes, signals, two of them in one folder. */
import { existsSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { appears, errorOf } from "./testing/expectations.js";
import { runInProcess } from "./testing/run-in-process.js";
import { SHOP_TOOLS } from "./testing/shop-tools.js";
import { type Ended, startToolrunner, type ToolrunnerProcess, toolrunner } from "./testing/toolrunner-process.js";

let running: ToolrunnerProcess[] = [];

afterEach(async () => {
  for (const each of running.reverse()) each.signal("SIGKILL");
  await Promise.all(running.map(({ ended }) => ended));
  running = [];
});

function start(args: readonly string[], env: Readonly<Record<string, string>> = {}, cwd = process.cwd()): ToolrunnerProcess {
  const made = startToolrunner(args, { cwd, env });
  running.push(made);
  return made;
}

describe("toolrunner run", () => {
  let shared: string;
  let dev: ToolrunnerProcess;

  beforeAll(async () => {
    shared = await mkdtemp(join(tmpdir(), "toolrunner-cli-shared-"));
    await writeFile(join(shared, "shop.ts"), SHOP_TOOLS);
    dev = startToolrunner(["dev", "--port", "0", "--grpc-port", "0", "--json"], { cwd: shared });
    await dev.ready();
  }, 30_000);
  afterAll(async () => {
    dev.signal("SIGTERM");
    const { exitCode } = await dev.ended;
    await rm(shared, { recursive: true, force: true });
    expect(exitCode).toBe(0);
  });

  const inShared = (args: readonly string[]): Promise<Ended> => runInProcess(args, { cwd: shared });
  const asProcess = (args: readonly string[]): Promise<Ended> => toolrunner(args, { cwd: shared });

  it("run refuses a module that is no array of tools, and names the tool that is at fault", async () => {
    await writeFile(join(shared, "none.mjs"), "export default 7;");
    const none = await asProcess(["run", "none.mjs", "--json"]);
    expect(none.exitCode).toBe(1);
    expect(errorOf(none).code).toBe("module_invalid");
    await writeFile(
      join(shared, "bad.mjs"),
      'const tool = { name: "twice", description: "", input: {}, run: () => 1 };\nexport default [tool, tool];',
    );
    const bad = await asProcess(["run", "bad.mjs", "--json"]);
    expect(bad.exitCode).toBe(1);
    expect(errorOf(bad)).toMatchObject({ code: "tool_duplicate", message: expect.stringContaining("twice") });
    expect((await asProcess(["run", "not-there.ts"])).exitCode).toBe(2);
  });

  it("run makes its ready file while it takes calls, and only then", async () => {
    const ready = join(shared, "ready-file");
    await writeFile(ready, "of a process that died");
    // Nobody listens there: what an earlier process left must not speak for this one.
    const alone = start(
      ["run", "shop.ts", "--url", "ws://127.0.0.1:9", "--token", "t", "--ready-file", ready, "--log-level", "silent"],
      {},
      shared,
    );
    await alone.printed("not connected");
    expect(existsSync(ready)).toBe(false);
    alone.signal("SIGTERM");
    await alone.ended;
    const made = start(["run", "shop.ts", "--binding", "seen", "--ready-file", ready, "--json"], {}, shared);
    await made.ready();
    await appears(ready);
    made.signal("SIGTERM");
    expect((await made.ended).exitCode).toBe(0);
    expect(existsSync(ready)).toBe(false);
  });

  it("run does not start with a ready file that it cannot write", async () => {
    const refused = await asProcess(["run", "shop.ts", "--ready-file", join("no", "such", "folder"), "--json", "--log-level", "silent"]);
    expect(refused.exitCode).toBe(1);
    expect(errorOf(refused)).toMatchObject({ code: "ready_file_invalid", message: expect.stringContaining("--ready-file") });
  });

  it("run with a wrong token is refused: exit 4", async () => {
    const refused = await asProcess(["run", "shop.ts", "--binding", "other", "--token", "wrong", "--json", "--log-level", "silent"]);
    expect(refused.exitCode).toBe(4);
    expect(errorOf(refused).code).toBe("credential_invalid");
  });

  it("run exits 1 when another takes over its runner id, and the other goes on", async () => {
    const args = ["run", "shop.ts", "--binding", "pair", "--runner-id", "same", "--json", "--log-level", "silent"];
    const first = start(args, {}, shared);
    await first.ready();
    const second = start(args, {}, shared);
    await second.ready();
    const ended = await first.ended;
    expect(ended.exitCode).toBe(1);
    expect(JSON.parse(ended.stderr)).toMatchObject({
      error: { code: expect.stringContaining("superseded"), message: expect.stringContaining("--runner-id") },
    });
    expect((await inShared(["call", "echo", "--toolset", "pair", "--args", '{"text":"b"}'])).exitCode).toBe(0);
    second.signal("SIGTERM");
    expect((await second.ended).exitCode).toBe(0);
  });

  it.each(["ws", "grpc", "http"])("run serves over %s", async (protocol) => {
    const { http, ws, grpc } = await dev.ready();
    const url = { ws, grpc, http }[protocol] ?? "";
    const binding = `over-${protocol}`;
    const made = start(["run", "shop.ts", "--url", url, "--binding", binding, "--json"], {}, shared);
    await made.ready();
    expect((await inShared(["call", "echo", "--toolset", binding, "--args", '{"text":"x"}'])).exitCode).toBe(0);
    made.signal("SIGTERM");
    expect((await made.ended).exitCode).toBe(0);
  });

  it("SIGTERM lets what runs finish and exits 0", async () => {
    const made = start(["run", "shop.ts", "--binding", "drained", "--json"], {}, shared);
    await made.ready();
    const [begun, until] = [join(shared, "begun-drain"), join(shared, "until-drain")];
    const call = inShared(["call", "wait", "--toolset", "drained", "--args", JSON.stringify({ until, begun }), "--json"]);
    await appears(begun);
    made.signal("SIGTERM");
    await writeFile(until, "");
    expect((await made.ended).exitCode).toBe(0);
    expect(JSON.parse((await call).stdout)).toMatchObject({ state: "succeeded", result: "waited", attempt: 1 });
  });

  it.each([
    ["a second signal ends it at once", []],
    ["its time is up", ["--drain-seconds", "0.2"]],
  ])("a drain that is cut short because %s exits 1", async (_why, more) => {
    const binding = `cut-${more.length}`;
    const made = start(["run", "shop.ts", "--binding", binding, ...more], {}, shared);
    await made.printed("ready:");
    const begun = join(shared, `begun-${binding}`);
    const call = start(
      ["call", "wait", "--toolset", binding, "--args", JSON.stringify({ until: join(shared, "never"), begun })],
      {},
      shared,
    );
    await appears(begun);
    made.signal("SIGTERM");
    await made.printed("draining");
    if (more.length === 0) made.signal("SIGTERM");
    expect((await made.ended).exitCode).toBe(1);
    call.signal("SIGKILL");
  });

  it("two runners in one folder keep a journal each, and one that starts again finds its own", async () => {
    const args = ["run", "shop.ts", "--binding", "twins", "--json"];
    const [first, second] = [start(args, {}, shared), start(args, {}, shared)];
    const ids = [(await first.ready())["runner_id"], (await second.ready())["runner_id"]];
    expect(new Set(ids).size).toBe(2);
    first.signal("SIGTERM");
    second.signal("SIGTERM");
    await Promise.all([first.ended, second.ended]);
    const third = start(args, {}, shared);
    expect(ids).toContain((await third.ready())["runner_id"]);
    const named = await asProcess([
      "run",
      "shop.ts",
      "--binding",
      "twins",
      "--journal",
      join(".toolrunner", "journal", "twins"),
      "--json",
      "--log-level",
      "silent",
    ]);
    expect(named.exitCode).toBe(1);
    expect(errorOf(named).code).toBe("journal_in_use");
  });
});
