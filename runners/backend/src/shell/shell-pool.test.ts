import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import path from "node:path";
import { describe, expect, it } from "vitest";
import { isAlive, usePools } from "../testing/shell-pools.js";
import { COMMAND_BYTES } from "./shell-pool.js";

const makePool = usePools();

describe("bash: what a result holds (W6)", () => {
  it("has output with errors in order, exit code, duration and directory", async () => {
    const { run, rootFolder } = makePool();
    const result = await run("echo one; echo two >&2; echo three; exit 3");
    expect(result).toEqual({
      output: "one\ntwo\nthree\n",
      exit_code: 3,
      duration_ms: expect.any(Number),
      timed_out: false,
      directory: rootFolder,
      log_file: null,
      process_id: null,
      notes: [],
    });
    expect(result.duration_ms).toBeGreaterThanOrEqual(0);
  });

  it.each([
    ["true", 0],
    ["false", 1],
    ["exit 200", 200],
    ["no-such-command-here", 127],
    ["kill -9 $$", 137],
    ["(exit 5)", 5],
    ["set -e; false; echo not reached", 1],
    ["if then", 2],
    ["echo 'not closed", 2],
    ["exec false", 1],
    ["trap 'echo bye' EXIT; exit 4", 4],
    ["set -u; echo $nope_nope", 127],
    ["-x", 127],
    ["# nothing", 0],
    ["cat <<'END'\nhello\nEND", 0],
  ])("%j is a result with exit code %i", async (command, exitCode) => {
    const { run } = makePool();
    const result = await run(command);
    expect([result.output, result.exit_code]).toEqual([result.output, exitCode]);
    // Whatever it did to its shell, the next command finds one.
    expect((await run("echo fine")).output).toBe("fine\n");
  });

  it("names lines of the command in messages of the shell", async () => {
    const { run } = makePool();
    expect((await run("true\n\nno-such-command-here")).output).toBe("bash: line 3: no-such-command-here: command not found\n");
  });

  it("sets PAGER, NO_COLOR, TERM and GIT_TERMINAL_PROMPT, and gives no input", async () => {
    const { run } = makePool();
    expect((await run('echo "$PAGER $NO_COLOR $TERM $GIT_TERMINAL_PROMPT"; cat; read -r line; echo "rest: $line"')).output).toBe(
      "cat 1 dumb 0\nrest: \n",
    );
  });

  it("keeps the runner's credentials from commands, and marks the processes", async () => {
    const { run, state } = makePool({
      PATH: process.env["PATH"],
      TOOLRUNNER_RUNNER_TOKEN: "secret",
      TOOLRUNNER_KEY: "secret",
      BASH_ENV: "/nope",
    });
    const lines = (await run("env; export X=1", { grantId: "call_marked" })).output
      .split("\n")
      .filter((line) => line.startsWith("TOOLRUNNER_"));
    expect(lines.sort()).toEqual(["TOOLRUNNER_GRANT_ID=call_marked", `TOOLRUNNER_WORKSPACE_MARK=${state.mark.value}`]);
    expect((await run("env", { grantId: "call_next" })).output).toContain("TOOLRUNNER_GRANT_ID=call_next\n");
  });

  it("refuses neither command nor restart, a NUL, and a command longer than the system takes", async () => {
    const { run } = makePool();
    await expect(run(undefined)).rejects.toMatchObject({ code: "arguments_invalid" });
    await expect(run("echo a\0b")).rejects.toMatchObject({ code: "arguments_invalid" });
    await expect(run(`: ${"x".repeat(COMMAND_BYTES)}`)).rejects.toMatchObject({ code: "command_too_long" });
    expect((await run(`: ${"x".repeat(COMMAND_BYTES - 2)}`)).exit_code).toBe(0);
  });
});

describe("bash: what carries over (W6)", () => {
  it("carries directory and exported variables over, nothing else, whatever their values hold", async () => {
    const { run, rootFolder } = makePool();
    mkdirSync(path.join(rootFolder, "a b/ü"), { recursive: true });
    await run(
      `cd 'a b/ü'; export ODD=$'two\\nlines \\'"\`$x\\\\ é😀\\t'; plain=1; alias ll=ls; f() { :; }; set -f; unset HOME; export -n PAGER`,
    );
    const next = await run(
      'pwd; printf %s "$ODD" | head -c 14 | od -An -c; echo "[$plain]"; type f >/dev/null 2>&1 || echo no f; echo "home=[$HOME]"; env | grep -c ^PAGER; echo "$OLDPWD"',
    );
    expect(next.output).toBe(
      `${rootFolder}/a b/ü\n   t   w   o  \\n   l   i   n   e   s       '   "   \`   $\n[]\nno f\nhome=[]\n0\n${rootFolder}\n`,
    );
    expect(next.directory).toBe(`${rootFolder}/a b/ü`);
    expect((await run('printf %s "$ODD"; cd - >/dev/null; pwd')).output).toBe(`two\nlines '"\`$x\\ é😀\t${rootFolder}\n`);
  });

  it("keeps the name by which a linked directory was entered", async () => {
    const { run, rootFolder } = makePool();
    mkdirSync(path.join(rootFolder, "real"));
    symlinkSync("real", path.join(rootFolder, "alias"));
    await run("cd alias");
    expect((await run("pwd; pwd -P; cd ..; pwd")).output).toBe(`${rootFolder}/alias\n${rootFolder}/real\n${rootFolder}\n`);
  });

  it("carries over from commands that exit, and that set traps, options and functions in its way", async () => {
    const { run, rootFolder } = makePool();
    mkdirSync(path.join(rootFolder, "d"));
    await run("cd d; export A=1; exit 7");
    expect((await run('pwd; echo "$A"')).output).toBe(`${rootFolder}/d\n1\n`);
    for (const hostile of [
      "trap 'true' EXIT",
      "set -eux; set -C",
      'printf() { :; }; pwd() { :; }; export() { builtin export "$@"; }; unset() { :; }',
      "exec >/dev/null",
      "set -- -z; shift",
      "IFS=/",
    ]) {
      await run(`export A=2; ${hostile}; builtin export A=3; cd ..; cd d`);
      expect([hostile, (await run('echo "$A"; builtin export A=1')).output]).toEqual([hostile, "3\n"]);
    }
  });

  it("keeps what was before when a command kills or replaces its shell, and says so", async () => {
    const { run } = makePool();
    await run("export A=1");
    for (const command of ["export A=2; kill -9 $$", "export A=2; exec true"]) {
      expect((await run(command)).notes).toEqual([expect.stringContaining("before it could write down its state")]);
      expect((await run('echo "$A"')).output).toBe("1\n");
    }
  });

  it("starts in the root again when the directory is gone, and says so", async () => {
    const { run, rootFolder } = makePool();
    mkdirSync(path.join(rootFolder, "d"));
    await run("cd d");
    rmSync(path.join(rootFolder, "d"), { recursive: true });
    const next = await run("pwd");
    expect(next.output).toBe(`${rootFolder}\n`);
    expect(next.notes).toEqual([expect.stringContaining("is gone")]);
  });

  it("uses workdir for one command only", async () => {
    const { run, rootFolder } = makePool();
    mkdirSync(path.join(rootFolder, "d/e"), { recursive: true });
    expect((await run("pwd; cd e; export A=1", { workdir: "d" })).output).toBe(`${rootFolder}/d\n`);
    expect((await run('pwd; echo "$A"')).output).toBe(`${rootFolder}\n1\n`);
    await expect(run("pwd", { workdir: "missing" })).rejects.toMatchObject({ code: "not_found" });
  });

  it("keeps conversations apart", async () => {
    const { run } = makePool();
    await run("export A=one", { conversation: "session a" });
    await run("export A=two", { conversation: "session b" });
    expect((await run('echo "$A"', { conversation: "session a" })).output).toBe("one\n");
    expect((await run('echo "$A"', { conversation: "session b" })).output).toBe("two\n");
    expect((await run('echo "[$A]"')).output).toBe("[]\n");
  });

  it("restart clears directory, exports and logs of its conversation, and ends no process", async () => {
    const { run, rootFolder } = makePool();
    mkdirSync(path.join(rootFolder, "d"));
    const first = await run("cd d; export A=1; sleep 100 &");
    const other = await run("seq 20000", { conversation: "session b" });
    const pid = first.process_id ?? 0;
    expect(existsSync(first.log_file ?? "")).toBe(true);
    const restarted = await run('pwd; echo "[$A]"', { restart: true });
    expect(restarted.output).toBe(`${rootFolder}\n[]\n`);
    expect(isAlive(pid)).toBe(true);
    expect(existsSync(first.log_file ?? "")).toBe(false);
    expect(existsSync(other.log_file ?? "")).toBe(true);
    expect(await run(undefined, { restart: true })).toMatchObject({
      exit_code: 0,
      output: "",
      notes: [expect.stringContaining("restarted")],
    });
    process.kill(pid, "SIGKILL");
  });

  it("keeps exports within bounds, and says so", async () => {
    const { run } = makePool();
    await run("export A=1");
    const big = await run("export A=2 BIG=$(head -c 300000 /dev/zero | tr '\\0' x)");
    expect(big.notes).toEqual([expect.stringContaining("exported variables take")]);
    expect((await run('printf %s "$A $BIG" | wc -c')).output).toBe("2\n");
  });
});

describe("bash: order (W6)", () => {
  it("runs commands of one conversation one after the other, in order, and those of different ones side by side", async () => {
    const { run, rootFolder } = makePool();
    const order = ["0", "1", "2", "3", "4"].map((index) => run(`echo start ${index} >> log; sleep 0.05; echo end ${index} >> log`));
    await Promise.all(order);
    expect(readFileSync(path.join(rootFolder, "log"), "utf8")).toBe(
      "01234"
        .split("")
        .map((index) => `start ${index}\nend ${index}\n`)
        .join(""),
    );

    execFileSync("mkfifo", [path.join(rootFolder, "meet")]);
    // Each waits for the other: only side by side do they end.
    const [one, two] = await Promise.all([
      run("echo hello > meet", { conversation: "session a" }),
      run("cat meet", { conversation: "session b" }),
    ]);
    expect([one.exit_code, two.output]).toEqual([0, "hello\n"]);
  });

  it("lets a call that waits for its turn be cancelled, without letting a later one past the running one", async () => {
    const { run, rootFolder } = makePool();
    execFileSync("mkfifo", [path.join(rootFolder, "gate")]);
    const first = run("cat gate > /dev/null; echo first >> log");
    const controller = new AbortController();
    const second = run("echo second >> log", { signal: controller.signal });
    const third = run("echo third >> log");
    controller.abort(new Error("cancelled by a test"));
    await expect(second).rejects.toThrow("cancelled by a test");
    await run("echo go > gate", { conversation: "other" });
    await Promise.all([first, third]);
    expect(readFileSync(path.join(rootFolder, "log"), "utf8")).toBe("first\nthird\n");
  });
});
