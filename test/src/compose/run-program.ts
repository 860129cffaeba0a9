/** Programs of the machine, run to their end. */
import { spawn } from "node:child_process";

/** How a program ended. */
export interface Ended {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** What a program gets besides its arguments. */
export interface RunOptions {
  readonly cwd?: string;
  /** Added to this process's environment; undefined takes a variable out. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly stdin?: string;
  /** Ends it after this long; none by default. */
  readonly timeoutMs?: number;
}

/** Resolves with what it printed; a program that cannot be started, or that a signal ended, has code 127 or 1. */
export function run(program: string, args: readonly string[], { cwd, env = {}, stdin = "", timeoutMs }: RunOptions = {}): Promise<Ended> {
  return new Promise((resolve) => {
    const child = spawn(program, args, {
      ...(cwd === undefined ? {} : { cwd }),
      env: { ...process.env, ...env },
      stdio: ["pipe", "pipe", "pipe"],
      ...(timeoutMs === undefined ? {} : { timeout: timeoutMs, killSignal: "SIGKILL" }),
    });
    let stdout = "";
    let stderr = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      stdout += text;
    });
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      stderr += text;
    });
    child.stdin.on("error", () => undefined);
    child.stdin.end(stdin);
    child.once("error", (cause) => resolve({ code: 127, stdout, stderr: `${stderr}${cause.message}` }));
    child.once("close", (code) => resolve({ code: code ?? 1, stdout, stderr }));
  });
}

/** What it printed on standard output. Rejects with what it printed on standard error when its exit code is not 0. */
export async function output(program: string, args: readonly string[], options: RunOptions = {}): Promise<string> {
  const { code, stdout, stderr } = await run(program, args, options);
  if (code !== 0) throw new Error(`${program} ${args.join(" ")} ended with ${code}: ${(stderr || stdout).slice(-4_000)}`);
  return stdout;
}
