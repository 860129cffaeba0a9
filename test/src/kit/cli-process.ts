/** Real `toolrunner` processes: started with `--json`, awaited until ready, drained or killed by pid. */
import { type ChildProcess, spawn } from "node:child_process";
import { fileURLToPath } from "node:url";

const CLI = fileURLToPath(new URL("../../../cli/bin/toolrunner.js", import.meta.url));

export interface CliProcess {
  readonly pid: number;
  /** The line that it printed when it was ready. */
  readonly ready: Record<string, unknown>;
  /** What it wrote on stderr so far. */
  stderr(): string;
  /** SIGTERM, then the exit code. */
  stop(): Promise<number | null>;
  /** SIGKILL; resolves when the process is gone. */
  kill9(): Promise<void>;
  signal(name: NodeJS.Signals): void;
  readonly exited: Promise<number | null>;
}

export interface CliOptions {
  readonly cwd: string;
  readonly env?: Readonly<Record<string, string>>;
}

export interface CliOutcome {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

const children = new Set<ChildProcess>();
process.on("exit", () => {
  for (const child of children) {
    child.kill("SIGKILL");
  }
});

function launch(args: readonly string[], options: CliOptions): ChildProcess {
  const {
    TOOLRUNNER_URL,
    TOOLRUNNER_KEY,
    TOOLRUNNER_RUNNER_URL,
    TOOLRUNNER_RUNNER_TOKEN,
    TOOLRUNNER_NATS_URL,
    TOOLRUNNER_BOOTSTRAP_KEY,
    ...clean
  } = process.env;
  const child = spawn(process.execPath, [CLI, ...args], {
    cwd: options.cwd,
    env: { ...clean, ...options.env },
    stdio: ["pipe", "pipe", "pipe"],
  });
  children.add(child);
  child.once("exit", () => children.delete(child));
  return child;
}

/** Starts a command that stays. Rejects with its stderr when it ends before it is ready, or is not within 20 s. */
export async function startCli(args: readonly string[], options: CliOptions): Promise<CliProcess> {
  const child = launch([...args, "--json"], options);
  let stdout = "";
  let stderr = "";
  const exited = new Promise<number | null>((resolve) => child.once("exit", (code) => resolve(code)));
  child.stderr?.setEncoding("utf8").on("data", (chunk: string) => {
    stderr += chunk;
  });
  const ready = await new Promise<Record<string, unknown>>((resolve, reject) => {
    const late = setTimeout(() => reject(new Error(`toolrunner ${args[0] ?? ""} was not ready within 20 s: ${stderr}`)), 20_000);
    child.stdout?.setEncoding("utf8").on("data", (chunk: string) => {
      stdout += chunk;
      const end = stdout.indexOf("\n");
      if (end >= 0) {
        clearTimeout(late);
        resolve(JSON.parse(stdout.slice(0, end)) as Record<string, unknown>);
      }
    });
    void exited.then((code) => {
      clearTimeout(late);
      reject(new Error(`toolrunner ${args[0] ?? ""} ended with ${code} before it was ready: ${stderr}`));
    });
  });
  return {
    pid: child.pid ?? 0,
    ready,
    stderr: () => stderr,
    stop() {
      child.kill("SIGTERM");
      return exited;
    },
    async kill9() {
      child.kill("SIGKILL");
      await exited;
    },
    signal: (name) => void child.kill(name),
    exited,
  };
}

/** Runs a command to its end, at most 30 s. */
export async function runCli(args: readonly string[], options: CliOptions & { readonly input?: string }): Promise<CliOutcome> {
  const child = launch(args, options);
  let stdout = "";
  let stderr = "";
  child.stdout?.setEncoding("utf8").on("data", (chunk: string) => {
    stdout += chunk;
  });
  child.stderr?.setEncoding("utf8").on("data", (chunk: string) => {
    stderr += chunk;
  });
  child.stdin?.end(options.input ?? "");
  const late = setTimeout(() => child.kill("SIGKILL"), 30_000);
  const code = await new Promise<number | null>((resolve) => child.once("close", (status) => resolve(status)));
  clearTimeout(late);
  return { code, stdout, stderr };
}
