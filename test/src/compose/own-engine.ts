/**
 * A container engine of the test's own: its data, its socket and its processes are in a folder that is gone afterwards.
 *
 * Invariants: an engine that runs already is never touched, nor are rules of the firewall that were there before; after `stop()`
 * no process, mount, network or rule of this engine is left. Where no engine can be had, the reason says what to do.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, openSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually } from "../kit/eventually.js";
import { output, run } from "./run-program.js";

/** An engine that answers at `host`, a value for `DOCKER_HOST`. */
export interface Engine {
  readonly host: string;
  /** Whether it was started here: then it has no images yet, and can pull none where there is no registry. */
  readonly own: boolean;
  stop(): Promise<void>;
}

const PROGRAMS = ["dockerd", "docker", "iptables", "ip"] as const;
const START_MS = 60_000;
const FORWARD = "/proc/sys/net/ipv4/ip_forward";

/** Why no engine of one's own can be started here; undefined when one can. */
export async function whyNoEngine(): Promise<string | undefined> {
  if (process.platform !== "linux" || process.getuid?.() !== 0)
    return "an engine of its own needs root on Linux; or name one in DOCKER_HOST";
  const missing: string[] = [];
  for (const program of PROGRAMS) if ((await run("sh", ["-c", `command -v ${program}`])).code !== 0) missing.push(program);
  if (missing.length > 0)
    return `not installed: ${missing.join(", ")}. apt-get install -y --no-install-recommends docker.io docker-compose iptables iproute2`;
  if ((await run("ip", ["link", "show", "docker0"])).code === 0 || (await dockerChains()).length > 0)
    return "an engine runs here already and is not touched; name it in DOCKER_HOST to use it";
  return undefined;
}

/** The engine that `DOCKER_HOST` names, or a new one. Rejects when it does not start. */
export async function startEngine(): Promise<Engine> {
  const named = process.env.DOCKER_HOST;
  if (named !== undefined && named !== "") return { host: named, own: false, stop: () => Promise.resolve() };
  const folder = await mkdtemp(join(tmpdir(), "toolrunner-engine-"));
  const before = { forward: await readFile(FORWARD, "utf8"), policy: await forwardPolicy(), bridges: await bridges() };
  const host = `unix://${join(folder, "socket")}`;
  const log = join(folder, "log");
  const descriptor = openSync(log, "a");
  const daemon = spawn(
    "dockerd",
    ["--data-root", join(folder, "data"), "--exec-root", join(folder, "run"), "--pidfile", join(folder, "pid"), "--host", host],
    { stdio: ["ignore", descriptor, descriptor] },
  );
  const exited = new Promise<void>((resolve) => {
    daemon.once("exit", () => resolve());
    daemon.once("error", () => resolve());
  });
  const stop = async (): Promise<void> => {
    await end(daemon, exited);
    await cleanUp(folder, before);
  };
  try {
    await eventually(
      "the engine",
      async () => {
        if (daemon.exitCode !== null) throw new Error(`dockerd ended: ${(await readFile(log, "utf8")).slice(-2_000)}`);
        return existsSync(join(folder, "socket")) && (await run("docker", ["version"], { env: { DOCKER_HOST: host } })).code === 0;
      },
      START_MS,
    );
  } catch (cause) {
    await stop();
    throw cause;
  }
  return { host, own: true, stop };
}

/** It stops its containers and its containerd first, so it has time. */
async function end(daemon: ChildProcess, exited: Promise<void>): Promise<void> {
  daemon.kill("SIGTERM");
  const late = setTimeout(() => daemon.kill("SIGKILL"), 60_000);
  await exited;
  clearTimeout(late);
}

/** What an engine changes on the machine, as it was. */
interface Before {
  readonly forward: string;
  readonly policy: string;
  readonly bridges: readonly string[];
}

async function bridges(): Promise<readonly string[]> {
  const text = await output("ip", ["-o", "link", "show", "type", "bridge"]);
  return [...text.matchAll(/^\d+: ([^:@\s]+)[:@]/gm)].map(([, name = ""]) => name);
}

async function cleanUp(folder: string, before: Before): Promise<void> {
  const mounts = (await readFile("/proc/mounts", "utf8"))
    .split("\n")
    .map((line) => line.split(" ")[1] ?? "")
    .filter((path) => path.startsWith(folder));
  for (const mount of mounts.reverse()) await run("umount", ["--lazy", mount]);
  for (const name of await bridges()) {
    if (/^(?:docker0|br-[0-9a-f]{12})$/.test(name) && !before.bridges.includes(name)) await run("ip", ["link", "delete", name]);
  }
  for (const table of ["filter", "nat"]) await removeRules(table);
  await run("iptables", ["-P", "FORWARD", before.policy]);
  await writeFile(FORWARD, before.forward);
  await rm(folder, { recursive: true, force: true });
}

/** The engine's chains, and what leads to them or is about its bridges. There were none before it started. */
async function removeRules(table: string): Promise<void> {
  const rules = (await output("iptables", ["-t", table, "-S"])).split("\n").filter((rule) => rule.startsWith("-A"));
  for (const rule of rules) {
    if (/ -A DOCKER/.test(` ${rule}`) || !/DOCKER|docker0|br-[0-9a-f]{12}/.test(rule)) continue;
    await run("iptables", ["-t", table, "-D", ...rule.split(" ").slice(1)]);
  }
  const chains = await dockerChains(table);
  for (const chain of chains) await run("iptables", ["-t", table, "-F", chain]);
  for (const chain of chains) await run("iptables", ["-t", table, "-X", chain]);
}

async function dockerChains(table = "filter"): Promise<readonly string[]> {
  const { code, stdout } = await run("iptables", ["-t", table, "-S"]);
  return code === 0 ? [...stdout.matchAll(/^-N (DOCKER\S*)$/gm)].map(([, chain = ""]) => chain) : [];
}

async function forwardPolicy(): Promise<string> {
  return /^-P FORWARD (\w+)$/m.exec(await output("iptables", ["-S", "FORWARD"]))?.[1] ?? "ACCEPT";
}
