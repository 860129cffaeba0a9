/**
 * Real nats-servers for tests: one, or a cluster.
 *
 * Invariants:
 * - No server outlives the process that started it: it is killed when that process ends, and by the kernel when that was killed.
 * - A server keeps its port and its folder over a restart.
 * - Ports lie below the range from which the system takes ports for outgoing connections, so that a port that is free while its
 *   server is down stays free.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ensureNatsServer, type NatsServerLine } from "../../../scripts/ensure-nats-server.mjs";

export type { NatsServerLine } from "../../../scripts/ensure-nats-server.mjs";

export interface NatsServerOptions {
  /** `2.9` is 2.9.10, `2.10` is 2.10.27. Default `2.10`. */
  readonly version?: NatsServerLine;
  /** JetStream's folder. Default: a new one, removed by `dispose`. */
  readonly storeDir?: string;
  /** Default: a free one. */
  readonly port?: number;
  /** Whether JetStream is on. Default `true`. */
  readonly jetStream?: boolean;
  /** More lines of the server's configuration file. */
  readonly config?: string;
}

export interface NatsServer {
  /** `nats://127.0.0.1:port` */
  readonly url: string;
  readonly port: number;
  readonly name: string;
  readonly storeDir: string;
  /** Of the present process. Throws while none runs. */
  readonly pid: number;
  readonly running: boolean;
  /** Starts it again, on the same folder and port; stops it first when it runs. Resolves when it is ready. */
  restart(): Promise<void>;
  /** SIGTERM, and waits for the end. No-op when it does not run. */
  stop(): Promise<void>;
  /** SIGKILL, and waits for the end. No-op when it does not run. */
  kill9(): Promise<void>;
  /** SIGSTOP: it stays connected and answers nothing. */
  pause(): void;
  /** SIGCONT. */
  resume(): void;
  /** What it logged since it was last started. */
  log(): string;
  /** Kills it and removes its folders. */
  dispose(): Promise<void>;
}

const READY_TIMEOUT_MS = 20_000;
const START_TRIES = 5;
/** The kernel stops a process within microseconds. */
const STOP_MS = 2_000;
/**
 * Each worker of a test run takes ports of a range of its own: the port of a server that was killed would otherwise be taken
 * by a server of another test, and its clients would come back to that one.
 */
const PORTS_A_WORKER = 1_500;
const WORKERS_MAX = 8;
const PORT_MIN = 20_000 + ((Number(process.env.VITEST_POOL_ID ?? 1) - 1) % WORKERS_MAX) * PORTS_A_WORKER;
const PORT_MAX = PORT_MIN + PORTS_A_WORKER;
const SET_PRIVILEGES = "/usr/bin/setpriv";

const running = new Set<number>();
const workDirs = new Set<string>();
let exitHooked = false;

/** For processes that end without `dispose`: no server and no folder stays behind. */
function killAll(): void {
  for (const pid of running) {
    try {
      process.kill(pid, "SIGKILL");
    } catch {
      // It ended by itself.
    }
  }
  for (const folder of workDirs) rmSync(folder, { recursive: true, force: true });
}

/** A loopback port below the system's own range that nobody listens on. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = PORT_MIN + Math.floor(Math.random() * (PORT_MAX - PORT_MIN));
    const isFree = await new Promise<boolean>((resolve) => {
      const probe = createServer();
      probe.once("error", () => resolve(false));
      probe.listen(port, "127.0.0.1", () => probe.close(() => resolve(true)));
    });
    if (isFree) return port;
  }
}

interface ServerSetup {
  readonly binary: string;
  readonly name: string;
  readonly port: number;
  readonly storeDir: string;
  readonly workDir: string;
  readonly config: string;
  readonly ownsStore: boolean;
}

/** Starts one server. Resolves when it takes connections. */
export async function startNatsServer(options: NatsServerOptions = {}): Promise<NatsServer> {
  const binary = await ensureNatsServer(options.version ?? "2.10");
  const workDir = await mkdtemp(join(tmpdir(), "toolrunner-nats-"));
  const storeDir = options.storeDir ?? join(workDir, "store");
  const parts = [options.jetStream === false ? "" : jetStreamConfig(storeDir), options.config ?? ""];
  return started(options.port, (port) => ({
    binary,
    name: `solo-${port}`,
    port,
    storeDir,
    workDir,
    config: parts.join("\n"),
    ownsStore: options.storeDir === undefined,
  }));
}

/** Another process may take a free port before the server does: then the next one is tried. */
async function started(fixedPort: number | undefined, setup: (port: number) => ServerSetup): Promise<NatsServer> {
  for (let tries = 1; ; tries += 1) {
    const server = new ServerProcess(setup(fixedPort ?? (await freePort())));
    try {
      await server.restart();
      return server;
    } catch (error) {
      await server.kill9();
      if (tries === START_TRIES || fixedPort !== undefined || !server.log().includes("address already in use")) {
        await server.dispose();
        throw error;
      }
    }
  }
}

function jetStreamConfig(storeDir: string): string {
  return `jetstream { store_dir: ${JSON.stringify(storeDir)} }`;
}

/** One server of a cluster, not yet started: for `startNatsCluster`. */
export async function prepareClusterNode(node: {
  readonly version: NatsServerLine;
  readonly name: string;
  readonly port: number;
  readonly clusterPort: number;
  /** Servers of clusters with other names do not join, even where one takes over a port of the other. */
  readonly cluster: string;
  readonly routes: readonly string[];
  /** Tells neither other servers nor clients where servers listen. Default `false`. */
  readonly isHidden?: boolean;
  readonly config?: string;
}): Promise<NatsServer> {
  const workDir = await mkdtemp(join(tmpdir(), "toolrunner-nats-"));
  const storeDir = join(workDir, "store");
  // Others would dial the address that a server tells of itself: this one nobody listens on.
  const hidden = node.isHidden === true ? ', no_advertise: true, advertise: "127.0.0.1:1"' : "";
  const config = [
    jetStreamConfig(storeDir),
    `cluster { name: ${node.cluster}, listen: "127.0.0.1:${node.clusterPort}", routes: ${JSON.stringify(node.routes)}${hidden} }`,
    node.config ?? "",
  ].join("\n");
  const binary = await ensureNatsServer(node.version);
  return new ServerProcess({ binary, name: node.name, port: node.port, storeDir, workDir, config, ownsStore: true });
}

class ServerProcess implements NatsServer {
  readonly #setup: ServerSetup;
  #child: ChildProcess | undefined;
  #ended: Promise<void> = Promise.resolve();
  #log = "";

  constructor(setup: ServerSetup) {
    this.#setup = setup;
  }

  get url(): string {
    return `nats://127.0.0.1:${this.port}`;
  }
  get port(): number {
    return this.#setup.port;
  }
  get name(): string {
    return this.#setup.name;
  }
  get storeDir(): string {
    return this.#setup.storeDir;
  }
  get running(): boolean {
    return this.#child !== undefined;
  }
  get pid(): number {
    const pid = this.#child?.pid;
    if (pid === undefined) throw new Error(`nats-server ${this.name} does not run`);
    return pid;
  }

  async restart(): Promise<void> {
    await this.stop();
    const { binary, workDir, storeDir, name, port, config } = this.#setup;
    await mkdir(storeDir, { recursive: true });
    const path = join(workDir, "nats.conf");
    await writeFile(path, `server_name: ${name}\nlisten: "127.0.0.1:${port}"\n${config}\n`);
    const command = existsSync(SET_PRIVILEGES) ? [SET_PRIVILEGES, "--pdeathsig", "KILL", binary] : [binary];
    const [file = binary, ...args] = [...command, "-c", path];
    const child = spawn(file, args, { stdio: ["ignore", "ignore", "pipe"] });
    this.#track(child);
    await this.#ready(child);
  }

  #track(child: ChildProcess): void {
    if (!exitHooked) {
      exitHooked = true;
      process.on("exit", killAll);
    }
    workDirs.add(this.#setup.workDir);
    const { pid } = child;
    if (pid !== undefined) running.add(pid);
    this.#child = child;
    this.#log = "";
    this.#ended = new Promise((resolve) => {
      const end = (): void => {
        if (pid !== undefined) running.delete(pid);
        if (this.#child === child) this.#child = undefined;
        resolve();
      };
      child.once("exit", end);
      child.once("error", end);
    });
  }

  /** The server says "Server is ready" in its log, which goes to standard error. */
  #ready(child: ChildProcess): Promise<void> {
    return new Promise((resolve, reject) => {
      const fail = (why: string): void => reject(new Error(`nats-server ${this.name} ${why}:\n${this.#log}`));
      const timer = setTimeout(() => fail(`was not ready after ${READY_TIMEOUT_MS} ms`), READY_TIMEOUT_MS);
      child.once("error", (error) => fail(`cannot be started (${error.message})`));
      child.once("exit", (code) => {
        clearTimeout(timer);
        fail(`ended with code ${code}`);
      });
      child.stderr?.setEncoding("utf8").on("data", (text: string) => {
        this.#log += text;
        if (!this.#log.includes("Server is ready")) return;
        clearTimeout(timer);
        resolve();
      });
    });
  }

  stop(): Promise<void> {
    return this.#end("SIGTERM");
  }

  kill9(): Promise<void> {
    return this.#end("SIGKILL");
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    if (this.#child === undefined) return;
    this.#child.kill(signal);
    // A paused server does not see SIGTERM before it goes on.
    this.#child.kill("SIGCONT");
    await this.#ended;
  }

  pause(): void {
    process.kill(this.pid, "SIGSTOP");
    // The kernel stops its threads one by one: until the last one, requests are answered.
    const tasks = `/proc/${this.pid}/task`;
    const end = performance.now() + STOP_MS;
    while (existsSync(tasks) && !readdirSync(tasks).every((task) => isStopped(`${tasks}/${task}/stat`))) {
      if (performance.now() > end) throw new Error(`nats-server ${this.pid} did not stop within ${STOP_MS} ms`);
    }
  }

  resume(): void {
    process.kill(this.pid, "SIGCONT");
  }

  log(): string {
    return this.#log;
  }

  async dispose(): Promise<void> {
    await this.kill9();
    await rm(this.#setup.workDir, { recursive: true, force: true });
    workDirs.delete(this.#setup.workDir);
    if (this.#setup.ownsStore) await rm(this.#setup.storeDir, { recursive: true, force: true });
  }
}

/** Is the thread stopped, or gone? */
function isStopped(stat: string): boolean {
  try {
    const text = readFileSync(stat, "utf8");
    return text.slice(text.lastIndexOf(")") + 2).startsWith("T");
  } catch {
    return true;
  }
}
