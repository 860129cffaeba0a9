/** The command as users run it: a process of its own in a folder of its own. For tests. */
import { type ChildProcess, spawn } from "node:child_process";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** The program that is tested. */
export const PROGRAM = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "bin", "toolrunner.js");

/** How a command ended. */
export interface Ended {
  /** Null when a signal ended it. */
  readonly exitCode: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A command that runs. */
export interface ToolrunnerProcess {
  readonly pid: number;
  /** Resolves with the first line of standard output that holds `event`; rejects when the process ends before. */
  ready(): Promise<Ready>;
  /** Resolves when standard output or standard error holds `text`; rejects when the process ends before. */
  printed(text: string): Promise<void>;
  signal(name: NodeJS.Signals): void;
  readonly ended: Promise<Ended>;
}

/** A ready line, parsed. */
export type Ready = Readonly<Record<string, string>> & { readonly handlers?: readonly unknown[] };

/** Where a command runs. */
export interface Place {
  readonly cwd: string;
  /** Added to a clean environment: no variable of ToolRunner is inherited. */
  readonly env?: Readonly<Record<string, string>>;
  readonly stdin?: string;
}

/** Starts `toolrunner ARGS`. */
export function startToolrunner(args: readonly string[], { cwd, env = {}, stdin }: Place): ToolrunnerProcess {
  const inherited = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("TOOLRUNNER_")));
  const child: ChildProcess = spawn(process.execPath, [PROGRAM, ...args], {
    cwd,
    env: { ...inherited, ...env },
    stdio: ["pipe", "pipe", "pipe"],
  });
  child.stdin?.on("error", () => undefined);
  child.stdin?.end(stdin ?? "");
  const text = { stdout: "", stderr: "" };
  const listeners = new Set<() => void>();
  for (const name of ["stdout", "stderr"] as const) {
    child[name]?.setEncoding("utf8").on("data", (chunk: string) => {
      text[name] += chunk;
      for (const listener of listeners) listener();
    });
  }
  const ended = new Promise<Ended>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (exitCode) => resolve({ exitCode, ...text }));
  });
  const seen = <T>(look: () => T | undefined): Promise<T> =>
    new Promise((resolve, reject) => {
      const listener = (): void => {
        const found = look();
        if (found === undefined) return;
        listeners.delete(listener);
        resolve(found);
      };
      listeners.add(listener);
      listener();
      void ended.then(
        ({ exitCode, stdout, stderr }) => reject(new Error(`toolrunner ${args.join(" ")} ended with ${exitCode}: ${stdout}${stderr}`)),
        reject,
      );
    });
  return {
    pid: child.pid ?? -1,
    ready: () =>
      seen(() => {
        const line = text.stdout.split("\n").find((each) => each.includes('"event":"ready"') && each.endsWith("}"));
        return line === undefined ? undefined : (JSON.parse(line) as Ready);
      }),
    printed: (wanted) =>
      seen(() => (text.stdout.includes(wanted) || text.stderr.includes(wanted) ? true : undefined)).then(() => undefined),
    signal: (name) => void child.kill(name),
    ended,
  };
}

/** Runs a command to its end. */
export function toolrunner(args: readonly string[], place: Place): Promise<Ended> {
  return startToolrunner(args, place).ended;
}
