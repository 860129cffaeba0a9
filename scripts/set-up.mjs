/**
 * What a fresh clone needs before any job: the right Node, the installed packages, the built packages, nats-server.
 *
 * Owns: the stamp in `node_modules`, the child processes of a job, and their end when the job is interrupted.
 * Invariant: nothing here, nor in what it imports at load time, needs an installed package.
 */
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

/** Absolute path of the repository. */
export const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));

/** Folders of the packages, from the root package.json. */
export function workspaces() {
  return JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")).workspaces;
}

/** A step that failed in a way that its own output or this message explains. No stack is printed. */
export class StepFailed extends Error {
  name = "StepFailed";
}

/** Prints one line about what the job does now. */
export function say(text) {
  process.stdout.write(`▸ ${text}\n`);
}

/** Runs `work` and prints how long it took. */
export async function timed(title, work) {
  const begun = performance.now();
  say(title);
  const value = await work();
  say(`${title}: ${((performance.now() - begun) / 1000).toFixed(1)} s`);
  return value;
}

const children = new Set();
let interrupted = false;

/** Passes SIGINT and SIGTERM on to whatever runs; a second one ends it at once. The job then exits with 130 or 143. */
export function forwardSignals() {
  for (const [signal, code] of [
    ["SIGINT", 130],
    ["SIGTERM", 143],
  ]) {
    process.on(signal, () => {
      for (const child of children) endChild(child, interrupted ? "SIGKILL" : signal);
      if (interrupted || children.size === 0) process.exit(code);
      interrupted = true;
      process.exitCode = code;
    });
  }
}

/**
 * Starts a process that ends with the job. Output goes where `stdio` says (default: to the job's).
 * With `group` it leads a process group, so that {@link endChild} ends what it started too.
 */
export function start(command, args, { env = {}, stdio = "inherit", cwd = ROOT, group = false } = {}) {
  const child = spawn(command, args, { cwd, stdio, detached: group && process.platform !== "win32", env: { ...process.env, ...env } });
  if (group) groups.add(child);
  children.add(child);
  child.once("close", () => children.delete(child));
  return child;
}

const groups = new WeakSet();

/** Sends a signal to a process, or to its whole group when it leads one. */
export function endChild(child, signal) {
  try {
    if (groups.has(child) && process.platform !== "win32") process.kill(-child.pid, signal);
    else child.kill(signal);
  } catch {
    // It ended in between.
  }
}

/** Resolves with the exit code; 1 when a signal ended the process. Rejects when it cannot be started. */
export function exited(child) {
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code) => resolve(code ?? 1));
  });
}

/** Runs to the end and resolves with the exit code. */
export function run(command, args, options) {
  return exited(start(command, args, options));
}

/** Runs a Node program of an installed package, such as `vitest/vitest.mjs`. */
export function runPackageProgram(program, args, { node = process.execPath, ...options } = {}) {
  return run(node, [join(ROOT, "node_modules", program), ...args], options);
}

/** Throws when this Node is older than `engines.node` of the root package. */
export function checkNode(version = process.versions.node) {
  const wanted = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")).engines.node.replace(/^>=/, "");
  if (isOlder(version, wanted))
    throw new StepFailed(`Node ${version} is too old: ToolRunner needs ${wanted} or newer. Install it and run this again.`);
}

/** Compares dotted numbers. */
export function isOlder(version, than) {
  const [a, b] = [version, than].map((text) => text.split(".").map(Number));
  for (let index = 0; index < Math.max(a.length, b.length); index += 1) {
    const difference = (a[index] ?? 0) - (b[index] ?? 0);
    if (difference !== 0) return difference < 0;
  }
  return false;
}

/**
 * Why `npm ci` is needed, or undefined when what is installed is what package-lock.json says, built for this Node.
 * The stamp is written by {@link install}; without one, npm's own record of what it installed is compared.
 */
export function installReason({ root = ROOT, abi = process.versions.modules } = {}) {
  const installed = join(root, "node_modules", ".package-lock.json");
  if (!existsSync(installed)) return "node_modules is missing";
  const lockText = readFileSync(join(root, "package-lock.json"), "utf8");
  const stamp = readStamp(root);
  if (stamp !== undefined && stamp.abi !== abi) return `node_modules was built for another Node (ABI ${stamp.abi}, this one has ${abi})`;
  if (stamp !== undefined && stamp.lock === digest(lockText)) return undefined;
  const wanted = JSON.parse(lockText).packages;
  const present = JSON.parse(readFileSync(installed, "utf8")).packages;
  for (const [path, entry] of Object.entries(wanted)) {
    if (!path.startsWith("node_modules/") && !path.includes("/node_modules/")) continue;
    const found = present[path];
    if (found === undefined && entry.optional !== true) return `${path} is missing`;
    if (found !== undefined && found.version !== entry.version)
      return `${path} is ${found.version}, package-lock.json says ${entry.version}`;
  }
  if (stamp === undefined && !existsSync(join(root, "node_modules/better-sqlite3/build/Release/better_sqlite3.node"))) {
    return "better-sqlite3 is not built";
  }
  return undefined;
}

const stampPath = (root) => join(root, "node_modules", ".toolrunner-installed.json");
const digest = (text) => createHash("sha256").update(text).digest("hex");

function readStamp(root) {
  try {
    return JSON.parse(readFileSync(stampPath(root), "utf8"));
  } catch {
    return undefined;
  }
}

function writeStamp() {
  const lock = digest(readFileSync(join(ROOT, "package-lock.json"), "utf8"));
  writeFileSync(stampPath(ROOT), JSON.stringify({ lock, abi: process.versions.modules }));
}

/** Installs what package-lock.json says, when it is not there yet. */
export async function install() {
  const reason = installReason();
  if (reason === undefined) {
    writeStamp();
    return;
  }
  await timed(`npm ci (${reason}; compiling better-sqlite3 takes about a minute)`, async () => {
    // JOBS is node-gyp's; npm itself has nothing to say but errors.
    const code = await npm(["ci", "--no-audit", "--no-fund", "--loglevel=error"], { env: { JOBS: String(availableParallelism()) } });
    if (code !== 0) throw new StepFailed("npm ci failed: see its output above.");
  });
  writeStamp();
}

/** Runs npm: the one that started this job, else the one on the path. Resolves with its exit code. */
export function npm(args, options) {
  const path = process.env.npm_execpath;
  if (path?.endsWith(".js")) return run(process.execPath, [path, ...args], options);
  return run(process.platform === "win32" ? "npm.cmd" : "npm", args, options);
}

/** Builds every package; throws when there is a type error. */
export async function build() {
  for (const path of removeStaleTests()) say(`removed ${relative(ROOT, path)}: its source is gone`);
  await timed("tsc -b", async () => {
    if ((await runPackageProgram("typescript/bin/tsc", ["-b"])) !== 0) throw new StepFailed("The build failed: see the errors above.");
  });
}

/** A compiled test whose source was removed would go on being run. Returns what was removed. */
export function removeStaleTests(roots = workspaces().map((folder) => join(ROOT, folder))) {
  const removed = [];
  for (const root of roots) {
    const dist = join(root, "dist");
    if (!existsSync(dist)) continue;
    for (const entry of readdirSync(dist, { recursive: true })) {
      if (!entry.endsWith(".test.js")) continue;
      const source = join(root, "src", entry.replace(/\.js$/, ""));
      if (existsSync(`${source}.ts`) || existsSync(`${source}.tsx`)) continue;
      rmSync(join(dist, entry));
      removed.push(join(dist, entry));
    }
  }
  return removed;
}

/**
 * Brings a clone to where jobs can run: packages installed (and nats-server fetched beside it, when `nats` is true), all built.
 * A nats-server or a Chromium (installed on the machine, when `chromium` is true) that cannot be had is said and left to the tests
 * that need it, which say that they were skipped. With `CI` set it fails the job: nobody reads there what was skipped.
 */
export async function setUp({ nats = false, chromium = false } = {}) {
  checkNode();
  await Promise.all([install(), nats ? fetchNatsServers() : undefined, chromium ? installChromium() : undefined]);
  await build();
}

async function installChromium() {
  try {
    const { ensureChromium } = await import("./ensure-chromium.mjs");
    await ensureChromium();
  } catch (cause) {
    notHad("chromium", cause);
  }
}

async function fetchNatsServers() {
  try {
    const { ensureNatsServers } = await import("./ensure-nats-server.mjs");
    await ensureNatsServers();
  } catch (cause) {
    notHad("nats-server", cause);
  }
}

function notHad(what, cause) {
  const message = `${what} could not be had: ${cause instanceof Error ? cause.message : String(cause)}`;
  if (process.env.CI) throw new StepFailed(message);
  say(message);
}
