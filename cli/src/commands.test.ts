/** Commands that ask a broker: a real embedded one, with a real runner. */
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { appears, errorOf } from "./testing/expectations.js";
import { runInProcess } from "./testing/run-in-process.js";
import { SHOP_TOOLS } from "./testing/shop-tools.js";
import { type Ended, startToolrunner, type ToolrunnerProcess, toolrunner } from "./testing/toolrunner-process.js";

describe("with a broker and a runner", () => {
  let shared: string;
  let dev: ToolrunnerProcess;
  let runner: ToolrunnerProcess;
  let runnerReady: Awaited<ReturnType<ToolrunnerProcess["ready"]>>;

  beforeAll(async () => {
    shared = await mkdtemp(join(tmpdir(), "toolrunner-cli-shared-"));
    await writeFile(join(shared, "shop.ts"), SHOP_TOOLS);
    dev = startToolrunner(["dev", "--port", "0", "--grpc-port", "0", "--json"], { cwd: shared });
    await dev.ready();
    runner = startToolrunner(["run", "shop.ts", "--json"], { cwd: shared });
    runnerReady = await runner.ready();
  }, 30_000);
  afterAll(async () => {
    runner.signal("SIGTERM");
    const runnerEnded = await runner.ended;
    dev.signal("SIGTERM");
    const devEnded = await dev.ended;
    await rm(shared, { recursive: true, force: true });
    expect([runnerEnded.exitCode, devEnded.exitCode]).toEqual([0, 0]);
    expect(runnerEnded.stdout.trimEnd().split("\n")).toHaveLength(1);
  });

  const inShared = (args: readonly string[], stdin?: string): Promise<Ended> =>
    runInProcess(args, { cwd: shared, ...(stdin === undefined ? {} : { stdin }) });
  const asProcess = (args: readonly string[], stdin?: string): Promise<Ended> =>
    toolrunner(args, { cwd: shared, ...(stdin === undefined ? {} : { stdin }) });
  const json = async (args: readonly string[]): Promise<Readonly<Record<string, unknown>>> => {
    const ended = await inShared([...args, "--json"]);
    expect(ended.stderr).toBe("");
    return JSON.parse(ended.stdout);
  };
  const rows = async (args: readonly string[]): Promise<readonly Readonly<Record<string, unknown>>[]> =>
    (await json(args))["data"] as readonly Readonly<Record<string, unknown>>[];

  it("run says who it is and what it serves", () => {
    expect(runnerReady["runner_id"]).toMatch(/^[a-z][a-z0-9_-]{0,63}$/);
    expect(runnerReady.handlers).toContainEqual({ tool: "wait", version: "2", idempotent: true, cancellable: true });
    expect(runnerReady.handlers).toContainEqual({ tool: "echo", version: "1", idempotent: false, cancellable: false });
    expect(Object.keys(runnerReady)).toEqual(["event", "runner_id", "handlers"]);
  });

  it("call prints the call and exits 0 when it succeeded, arguments given inline, by file or on standard input", async () => {
    const inline = await asProcess(["call", "echo", "--toolset", "shop", "--args", '{"text":"hällo"}', "--json"]);
    expect(inline).toMatchObject({ exitCode: 0, stderr: "" });
    expect(JSON.parse(inline.stdout)).toMatchObject({
      type: "call",
      state: "succeeded",
      toolset: "shop",
      tool: "echo",
      result: { text: "hällo" },
    });
    await writeFile(join(shared, "args.json"), '\ufeff{"text":"from a file"}');
    expect((await inShared(["call", "echo", "--toolset", "shop", "--args", "@args.json", "--json"])).stdout).toContain("from a file");
    const stdin = await asProcess(["call", "echo", "--toolset", "shop", "--args", "-", "--subject", "user_42"], '{"text":"piped"}');
    expect(stdin.exitCode).toBe(0);
    expect(stdin.stdout).toMatch(/^call_\w+ {2}shop\/echo {2}succeeded\n {2}attempt 1, runner \w+, \d+ ms\n\{\n {2}"text": "piped"\n\}\n$/);
  });

  it("call exits 1 when the call settled otherwise, and prints why", async () => {
    const ended = await inShared(["call", "fail", "--toolset", "shop"]);
    expect(ended.exitCode).toBe(1);
    expect(ended.stdout).toContain("failed");
    expect(ended.stdout).toContain("order_unknown: there is no such order");
  });

  it("call exits 3 when the call is still open after --wait, and cancel ends it", async () => {
    const begun = join(shared, "begun-cancel");
    const args = JSON.stringify({ until: join(shared, "never"), begun });
    const open = await inShared(["call", "wait", "--toolset", "shop", "--args", args, "--wait", "0", "--json"]);
    expect(open).toMatchObject({ exitCode: 3, stderr: "" });
    const { id } = JSON.parse(open.stdout) as { readonly id: string };
    await appears(begun);
    const cancelled = await inShared(["cancel", id, "--reason", "enough", "--json"]);
    expect(cancelled.exitCode).toBe(0);
    const again = await inShared(["cancel", id, "--mode", "skip", "--json"]);
    expect(JSON.parse(again.stdout)).toMatchObject({ id, state: "cancelled" });
  });

  it("call makes no second call when the same key is used again", async () => {
    const args = ["call", "echo", "--toolset", "shop", "--args", '{"text":"once"}', "--idempotency-key", "the-key", "--json"];
    const [first, second] = [await inShared(args), await inShared(args)];
    expect(JSON.parse(second.stdout)).toEqual(JSON.parse(first.stdout));
    const other = await inShared(args.with(5, '{"text":"twice"}'));
    expect(other.exitCode).toBe(4);
    expect(errorOf(other)).toMatchObject({ type: "conflict_error", code: "idempotency_conflict" });
  });

  it("call takes an ordering key and a priority, and refuses a priority that there is none of (X10, X8)", async () => {
    const args = ["call", "echo", "--toolset", "shop", "--args", '{"text":"a"}', "--ordering-key", "order_1", "--json", "--priority"];
    const ordered = await inShared([...args, "background"]);
    expect(JSON.parse(ordered.stdout)).toMatchObject({ state: "succeeded" });
    const wrong = await inShared([...args, "soon"]);
    expect(wrong.exitCode).toBe(2);
    expect(wrong.stderr).toContain("interactive, background");
  });

  it("refusals exit 4 with the broker's own error object, or its message and every detail for people", async () => {
    const unknown = await inShared(["call", "none", "--toolset", "shop", "--json"]);
    expect(unknown.exitCode).toBe(4);
    expect(errorOf(unknown)).toMatchObject({ type: "not_found_error", code: "tool_unknown" });
    const invalid = await inShared(["call", "echo", "--toolset", "shop", "--args", '{"text":7}']);
    expect(invalid).toMatchObject({ exitCode: 4, stdout: "" });
    expect(invalid.stderr).toMatch(/^toolrunner: arguments_invalid: .*\/text.*\n$/);
    const wrongKey = await inShared(["calls", "--key", "wrong", "--json"]);
    expect(wrongKey.exitCode).toBe(4);
    expect(errorOf(wrongKey)).toMatchObject({ type: "authentication_error", code: "key_invalid" });
    expect((await inShared(["calls", "get", "call_none", "--json"])).exitCode).toBe(4);
  });

  it("confirm lets a call run or refuses it", async () => {
    const ask = async (): Promise<string> => {
      const ended = await inShared(["call", "ask", "--toolset", "shop", "--wait", "0", "--json"]);
      expect(ended.exitCode).toBe(3);
      const call = JSON.parse(ended.stdout) as { readonly id: string; readonly state: string };
      expect(call.state).toBe("awaiting_confirmation");
      return call.id;
    };
    expect((await inShared(["confirm", await ask(), "--deny"])).stdout).toContain("denied");
    const allowed = await ask();
    expect((await inShared(["confirm", allowed, "--allow"])).exitCode).toBe(0);
    const twice = await inShared(["confirm", allowed, "--deny", "--json"]);
    expect(twice.exitCode).toBe(4);
    expect((await inShared(["confirm", allowed, "--allow", "--deny"])).exitCode).toBe(2);
  });

  it("reconcile refuses a call that does not wait for it", async () => {
    const made = JSON.parse((await inShared(["call", "echo", "--toolset", "shop", "--args", '{"text":"a"}', "--json"])).stdout) as {
      readonly id: string;
    };
    const refused = await inShared(["reconcile", made.id, "--outcome", "abandon", "--json"]);
    expect(refused.exitCode).toBe(4);
    expect(errorOf(refused).code).toBe("not_reconcilable");
    expect((await inShared(["reconcile", made.id, "--outcome", "applied", "--json"])).exitCode).toBe(2);
    expect((await inShared(["reconcile", made.id, "--outcome", "guess", "--json"])).exitCode).toBe(2);
  });

  it("calls lists, filters, pages, and shows one call, its events and its result", async () => {
    const made = JSON.parse(
      (await inShared(["call", "echo", "--toolset", "shop", "--args", '{"text":"listed"}', "--subject", "lister", "--json"])).stdout,
    ) as { readonly id: string };
    const until = performance.now() + 10_000;
    let listed: readonly Readonly<Record<string, unknown>>[] = [];
    // The index follows the ledger: soon, not at once.
    while (listed.length === 0 && performance.now() < until) listed = await rows(["calls", "--subject", "lister"]);
    expect(listed.map(({ id }) => id)).toEqual([made.id]);
    expect(await json(["calls", "get", made.id])).toMatchObject({ id: made.id, state: "succeeded" });
    expect((await rows(["calls", "events", made.id])).map(({ event }) => event)).toEqual(
      expect.arrayContaining(["requested", "granted", "started", "settled"]),
    );
    expect((await inShared(["calls", "result", made.id])).stdout).toBe('{"text":"listed"}\n');
    const table = await inShared(["calls", "list", "--limit", "1"]);
    expect(table.stdout).toMatch(/^id +state +toolset +tool/);
    expect(table.stdout).toContain("more: --page ");
  });

  it("toolsets, tools, bindings and runners show what the runner brought", async () => {
    expect((await rows(["bindings"])).map(({ id, kind }) => [id, kind])).toContainEqual(["shop", "backend"]);
    expect((await rows(["tools", "--toolset", "shop"])).map(({ name }) => name).sort()).toEqual(["ask", "echo", "fail", "wait"]);
    expect(await json(["tools", "get", "wait"])).toMatchObject({ toolset: "shop", version: "2" });
    expect((await inShared(["toolsets"])).stdout).toMatch(/^id +version +tools/);
    const runners = await rows(["runners"]);
    expect(runners.map(({ runner_id, binding }) => [runner_id, binding])).toContainEqual([runnerReady["runner_id"], "shop"]);
    expect(await json(["runners", "get", runnerReady["runner_id"] ?? ""])).toMatchObject({ binding: "shop" });
    expect((await inShared(["runners", "get", "nobody", "--json"])).exitCode).toBe(4);
  });

  it("bindings and toolsets can be put from a file or standard input, and a toolset that was printed can be put again", async () => {
    await writeFile(join(shared, "desk.json"), JSON.stringify({ name: "Desk", kind: "desktop" }));
    expect((await inShared(["bindings", "put", "desk.json"])).stdout).toBe("binding desk created\n");
    expect((await inShared(["bindings", "put", "-"], '{"kind":"backend"}')).exitCode).toBe(2);
    expect((await inShared(["bindings", "put", "-", "--id", "Desk"], "{}")).exitCode).toBe(2);
    const tool = { name: "open", description: "Opens.", input_schema: { type: "object" }, binding: "desk" };
    expect((await inShared(["toolsets", "put", "-", "--id", "desk"], JSON.stringify({ tools: [tool] }))).stdout).toBe(
      "toolset desk created, version 1\n",
    );
    const printed = (await inShared(["toolsets", "get", "desk"])).stdout;
    expect((await inShared(["toolsets", "put", "-"], printed)).stdout).toContain("version 1");
    const changed = printed.replace("Opens.", "Opens it.");
    expect((await inShared(["toolsets", "put", "-"], changed)).stdout).toContain("version 2");
    const late = await inShared(["toolsets", "put", "-", "--json"], printed.replace("Opens.", "Opens late."));
    expect(late.exitCode).toBe(4);
    expect(errorOf(late).code).toBe("version_conflict");
    expect((await rows(["toolsets", "versions", "desk"])).map(({ version }) => version)).toEqual([2, 1]);
    expect(await json(["toolsets", "get", "desk", "--version", "1"])).toMatchObject({ version: 1 });
  });

  it("keys are made, shown once, listed and revoked", async () => {
    const made = await inShared(["keys", "put", "-", "--json"], '{"name":"reader","scopes":["calls:read"]}');
    const { id, key } = JSON.parse(made.stdout) as { readonly id: string; readonly key: string };
    expect((await inShared(["calls", "--key", key])).exitCode).toBe(0);
    expect((await inShared(["keys", "--key", key, "--json"])).exitCode).toBe(4);
    expect((await inShared(["keys"])).stdout).not.toContain(key);
    expect((await inShared(["keys", "delete", id])).stdout).toContain("revoked");
    expect((await inShared(["calls", "--key", key])).exitCode).toBe(4);
    const runnerKey = await inShared(["keys", "put", "-", "--binding", "shop"], "{}");
    expect(runnerKey).toMatchObject({ exitCode: 0, stdout: expect.stringContaining("not shown again") });
    expect((await inShared(["keys", "list", "--binding", "shop"])).stdout.split("\n").length).toBeGreaterThan(2);
  });
});
