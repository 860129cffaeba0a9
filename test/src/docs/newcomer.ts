/**
 * Somebody who follows the README: a folder with the packages installed, terminals where commands stay, and one where they end.
 *
 * Invariants: commands are run as they are written, by `sh`, with the real `npx`, which asks no registry; nothing outlives `leave()`.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { dirname, join } from "node:path";
import { eventually } from "../kit/eventually.js";
import { ROOT } from "./markdown.js";

/** What a command printed, and how it ended. */
export interface Outcome {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A command that stays. */
export interface Terminal {
  /** Everything it printed so far. */
  output(): string;
  /** Resolves when its output holds `text`; rejects when it ends before, or after 30 s. */
  shows(text: string): Promise<void>;
  /** SIGTERM to it and what it started; resolves with its exit code once all of them are gone. */
  end(): Promise<number | null>;
}

/** The folder and what runs in it. */
export interface Newcomer {
  readonly folder: string;
  /** Writes a file of the README. */
  write(name: string, text: string): Promise<void>;
  /** Runs commands to their end, for at most 60 s. */
  run(commands: string, environment?: Readonly<Record<string, string>>): Promise<Outcome>;
  /** Starts commands that stay. */
  start(commands: string, environment?: Readonly<Record<string, string>>): Terminal;
  /** Ends everything, the last one first, and removes the folder. */
  leave(): Promise<void>;
}

/** Throws when a port that the README names is taken: the test is then about something else. */
export async function expectFreePorts(ports: readonly number[]): Promise<void> {
  for (const port of ports) {
    const fault = await new Promise<string | undefined>((resolve) => {
      const probe = createServer();
      probe.once("error", (error) => resolve(error.message));
      probe.listen(port, "127.0.0.1", () => probe.close(() => resolve(undefined)));
    });
    if (fault !== undefined) {
      throw new Error(
        `The README's commands listen on 127.0.0.1:${port}, and that port is not free (${fault}). Stop what uses it, then run this again.`,
      );
    }
  }
}

/** Makes the folder. The packages are there as `npm install` would leave them, whatever state the clone's own links are in. */
export async function arrive(): Promise<Newcomer> {
  // In the clone, as the README says: what serves pages serves files of the project that it is in, and no others.
  await mkdir(join(ROOT, ".cache"), { recursive: true });
  const folder = await mkdtemp(join(ROOT, ".cache", "readme-"));
  await mkdir(join(folder, "node_modules", ".bin"), { recursive: true });
  await symlink(join(ROOT, "node_modules", "@toolrunner"), join(folder, "node_modules", "@toolrunner"));
  await symlink(join(ROOT, "cli", "bin", "toolrunner.js"), join(folder, "node_modules", ".bin", "toolrunner"));
  await symlink(join(ROOT, "node_modules", "vite", "bin", "vite.js"), join(folder, "node_modules", ".bin", "vite"));
  const terminals: Terminal[] = [];

  function launch(commands: string, environment: Readonly<Record<string, string>>): ChildProcess {
    const inherited = Object.entries(process.env).filter(([name]) => !/^TOOLRUNNER_|^npm_/i.test(name));
    return spawn("sh", ["-e", "-c", commands], {
      cwd: folder,
      // A group of its own: `npx` ends at a signal without passing it on.
      detached: true,
      env: { ...Object.fromEntries(inherited), npm_config_offline: "true", npm_config_update_notifier: "false", ...environment },
      stdio: ["ignore", "pipe", "pipe"],
    });
  }

  function start(commands: string, environment: Readonly<Record<string, string>> = {}): Terminal {
    const child = launch(commands, environment);
    let output = "";
    let closed = false;
    const ended = new Promise<number | null>((resolve) => {
      // `close` comes when nobody holds the pipes any more, so after the last process of the group.
      child.once("close", (code) => {
        closed = true;
        resolve(code);
      });
    });
    for (const stream of [child.stdout, child.stderr]) {
      stream?.setEncoding("utf8").on("data", (chunk: string) => {
        output += chunk;
      });
    }
    const terminal: Terminal = {
      output: () => output,
      async shows(text) {
        const shown = await eventually(
          `"${text}" from ${commands.trim()}`,
          () => output.includes(text) || (closed && "ended"),
          30_000,
        ).catch((error: Error) => Promise.reject(new Error(`${error.message}:\n${output}`)));
        if (shown === "ended" && !output.includes(text)) throw new Error(`${commands.trim()} ended before it showed "${text}":\n${output}`);
      },
      async end() {
        signalGroup(child, "SIGTERM");
        const late = setTimeout(() => signalGroup(child, "SIGKILL"), 20_000);
        const code = await ended;
        clearTimeout(late);
        return code;
      },
    };
    terminals.push(terminal);
    return terminal;
  }

  return {
    folder,
    async write(name, text) {
      await mkdir(dirname(join(folder, name)), { recursive: true });
      await writeFile(join(folder, name), text);
    },
    async run(commands, environment = {}) {
      const child = launch(commands, environment);
      let [stdout, stderr] = ["", ""];
      child.stdout?.setEncoding("utf8").on("data", (chunk: string) => {
        stdout += chunk;
      });
      child.stderr?.setEncoding("utf8").on("data", (chunk: string) => {
        stderr += chunk;
      });
      const late = setTimeout(() => signalGroup(child, "SIGKILL"), 60_000);
      const code = await new Promise<number | null>((resolve) => child.once("close", resolve));
      clearTimeout(late);
      return { code, stdout, stderr };
    },
    start,
    async leave() {
      for (const terminal of terminals.reverse()) await terminal.end();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

function signalGroup(child: ChildProcess, signal: NodeJS.Signals): void {
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, signal);
  } catch {
    // Every process of the group is gone already.
  }
}
