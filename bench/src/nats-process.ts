/**
 * A nats-server of its own for a measurement.
 *
 * Invariant: it does not outlive the measurement: it is ended by `stop`, and with this process.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import type { NatsLine } from "./options.js";

const READY_MS = 20_000;
const SET_PRIVILEGES = "/usr/bin/setpriv";

export interface NatsProcess {
  readonly url: string;
  stop(): Promise<void>;
}

/** Where `npm run bench` says that the binary is; undefined: it could not be had. */
export function natsBinary(line: NatsLine, environment: Readonly<Record<string, string | undefined>> = process.env): string | undefined {
  const path = environment[`TOOLRUNNER_NATS_SERVER_${line.replace(".", "_")}`];
  return path === "" ? undefined : path;
}

/** Starts it with its files in `folder`. Resolves when it takes connections. */
export async function startNats(binary: string, folder: string): Promise<NatsProcess> {
  const port = await freePort();
  const config = join(folder, "nats.conf");
  await mkdir(folder, { recursive: true });
  await writeFile(config, `listen: "127.0.0.1:${port}"\njetstream { store_dir: ${JSON.stringify(join(folder, "store"))} }\n`);
  // The kernel ends it when this process is killed.
  const [file = binary, ...args] = existsSync(SET_PRIVILEGES) ? [SET_PRIVILEGES, "--pdeathsig", "KILL", binary] : [binary];
  const child = spawn(file, [...args, "-c", config], { stdio: ["ignore", "ignore", "pipe"] });
  const kill = (): void => void child.kill("SIGKILL");
  process.once("exit", kill);
  const ended = new Promise<void>((resolve) => child.once("close", () => resolve()));
  try {
    await ready(child);
  } catch (error) {
    kill();
    throw error;
  }
  return {
    url: `nats://127.0.0.1:${port}`,
    async stop() {
      child.kill("SIGTERM");
      await ended;
      process.removeListener("exit", kill);
    },
  };
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const probe = createServer();
    probe.once("error", reject);
    probe.listen(0, "127.0.0.1", () => {
      const address = probe.address();
      probe.close(() => (typeof address === "object" && address !== null ? resolve(address.port) : reject(new Error("no port"))));
    });
  });
}

function ready(child: ChildProcess): Promise<void> {
  return new Promise((resolve, reject) => {
    let log = "";
    const fail = (why: string): void => reject(new Error(`nats-server ${why}:\n${log}`));
    const timer = setTimeout(() => fail(`was not ready after ${READY_MS} ms`), READY_MS);
    child.once("error", (error) => fail(`cannot be started (${error.message})`));
    child.once("exit", (code) => {
      clearTimeout(timer);
      fail(`ended with code ${code}`);
    });
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      log = (log + text).slice(-10_000);
      if (!log.includes("Server is ready")) return;
      clearTimeout(timer);
      resolve();
    });
  });
}
