#!/usr/bin/env node
/**
 * Makes two nats-server binaries available for tests, demo and bench:
 *
 * - 2.9: Debian bookworm's 2.9.10, the oldest server that ToolRunner supports;
 * - 2.10: Debian trixie's 2.10.27, the oldest that may replicate.
 *
 * A 2.9 that is installed is used as it is. What is missing is fetched with apt from the Debian mirror that this machine is set
 * up with, by a sources list and state folders of its own, and unpacked with `dpkg -x` below `.cache/nats-server/`: nothing is
 * installed, no service is started, root is not needed.
 *
 * Invariants: a folder below `.cache/nats-server/` that has its final name is complete (it is renamed into place), so runs at the
 * same time do not see each other's halves; when both servers are there, nothing is run but a look at the files.
 *
 * `TOOLRUNNER_NATS_SERVER_2_9` and `TOOLRUNNER_NATS_SERVER_2_10` name binaries to use instead.
 */
import { execFile } from "node:child_process";
import { access, constants, mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);
const CACHE = join(dirname(fileURLToPath(import.meta.url)), "..", ".cache", "nats-server");
const KEY_FOLDERS = ["/usr/share/keyrings", "/etc/apt/trusted.gpg.d"];
const APT_TRIES = 3;

/** What is fetched for each line of servers. `installed`: where the system's own may be. */
const SERVERS = {
  2.9: {
    release: "bookworm",
    folder: "2.9.10",
    accepts: /^2\.9\.(\d+)$/,
    patchMin: 10,
    installed: ["/usr/sbin/nats-server", "/usr/bin/nats-server"],
  },
  "2.10": { release: "trixie", folder: "2.10.27", accepts: /^2\.10\.(\d+)$/, patchMin: 27, installed: [] },
};

/** Both binaries, fetched when missing. Rejects with an error that says what to do when one cannot be had. */
export async function ensureNatsServers() {
  const [older, newer] = [await ensureNatsServer("2.9"), await ensureNatsServer("2.10")];
  return { 2.9: older, "2.10": newer };
}

/** The path of one binary, `"2.9"` or `"2.10"`, fetched when missing. */
export async function ensureNatsServer(line) {
  const server = SERVERS[line];
  if (server === undefined) throw new Error(`no nats-server ${line}: known are ${Object.keys(SERVERS).join(", ")}`);
  const variable = `TOOLRUNNER_NATS_SERVER_${line.replace(".", "_")}`;
  const named = process.env[variable];
  if (named !== undefined && named !== "") {
    if (!(await isRight(named, server)))
      throw new Error(`${variable}=${named} is not a nats-server ${line} of patch ${server.patchMin} or later`);
    return named;
  }
  const unpacked = join(CACHE, server.folder, "usr", "sbin", "nats-server");
  if (await isExecutable(unpacked)) return unpacked;
  for (const path of server.installed) if (await isRight(path, server)) return path;
  try {
    await fetchServer(server);
  } catch (cause) {
    throw new Error(
      `nats-server ${line} could not be fetched (${oneLine(cause)}). Get Debian ${server.release}'s package nats-server, unpack it with ` +
        `"dpkg -x nats-server_*.deb ${join(CACHE, server.folder)}", or name a binary in ${variable}.`,
      { cause },
    );
  }
  return unpacked;
}

async function isExecutable(path) {
  return access(path, constants.X_OK).then(
    () => true,
    () => false,
  );
}

async function isRight(path, server) {
  if (!(await isExecutable(path))) return false;
  const { stdout, stderr } = await run(path, ["--version"]);
  const version = /v(\d+\.\d+\.\d+)/.exec(stdout + stderr)?.[1] ?? "";
  const patch = server.accepts.exec(version)?.[1];
  return patch !== undefined && Number(patch) >= server.patchMin;
}

async function fetchServer(server) {
  await mkdir(CACHE, { recursive: true });
  const work = await mkdtemp(join(CACHE, ".fetch-"));
  try {
    const apt = await aptOfItsOwn(work, server.release);
    await retried(() => run("apt-get", [...apt, "update"], { cwd: work }));
    await retried(() => run("apt-get", [...apt, "download", "nats-server"], { cwd: work }));
    const archive = (await readdir(work)).find((name) => name.startsWith("nats-server_") && name.endsWith(".deb"));
    if (archive === undefined) throw new Error("apt-get download left no package");
    await run("dpkg", ["-x", join(work, archive), join(work, "unpacked")]);
    const binary = join(work, "unpacked", "usr", "sbin", "nats-server");
    if (!(await isRight(binary, server))) throw new Error(`Debian ${server.release} has another nats-server now: ${archive}`);
    await moveIntoPlace(join(work, "unpacked"), join(CACHE, server.folder));
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

/** The winner of several runs puts its folder there; what the others fetched is the same and is dropped. */
async function moveIntoPlace(from, to) {
  try {
    await rename(from, to);
  } catch (error) {
    if (await isExecutable(join(to, "usr", "sbin", "nats-server"))) return;
    if (error.code !== "ENOTEMPTY" && error.code !== "EEXIST") throw error;
    // A folder of that name without a server in it: somebody's broken copy.
    await rm(to, { recursive: true, force: true });
    await rename(from, to);
  }
}

/** Options that make apt use one source, and keep its lists, caches and locks below `work`. */
async function aptOfItsOwn(work, release) {
  const mirror = await debianMirror();
  const key = await keyOf(release);
  if (key === undefined) {
    console.error(`no key of Debian ${release} on this machine (package debian-archive-keyring): its signatures are not checked`);
  }
  const sources = join(work, "sources.list");
  await writeFile(sources, `deb [${key === undefined ? "trusted=yes" : `signed-by=${key}`}] ${mirror} ${release} main\n`);
  const folders = { State: join(work, "state"), Cache: join(work, "cache") };
  await mkdir(join(folders.State, "lists", "partial"), { recursive: true });
  await mkdir(join(folders.Cache, "archives", "partial"), { recursive: true });
  const settings = [
    `Dir::Etc::SourceList=${sources}`,
    "Dir::Etc::SourceParts=/dev/null",
    "Dir::Etc::PreferencesParts=/dev/null",
    `Dir::State=${folders.State}`,
    `Dir::Cache=${folders.Cache}`,
    "Acquire::Languages=none",
    "Acquire::Retries=3",
    "APT::Sandbox::User=",
    "APT::Update::Post-Invoke-Success::=",
  ];
  return ["-qq", ...settings.flatMap((setting) => ["-o", setting])];
}

/** The mirror that this machine's own release comes from, as its apt is set up. */
async function debianMirror() {
  const osRelease = await readFile("/etc/os-release", "utf8");
  const codename = /^VERSION_CODENAME="?([a-z]+)"?$/m.exec(osRelease)?.[1];
  if (!/^ID="?debian"?$/m.test(osRelease) || codename === undefined) throw new Error("this machine does not run a release of Debian");
  const { stdout } = await run("apt-get", ["indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages"]);
  const targets = stdout.split("\n").map((line) => line.trim().split(" "));
  const own = targets.find(([, release, component]) => (release === codename || release === "stable") && component === "main");
  if (own === undefined) throw new Error(`apt has no source for ${codename} main`);
  return own[0];
}

/** A key ring that can check the release's signature. */
async function keyOf(release) {
  const names = [
    `debian-archive-${release}-automatic.gpg`,
    `debian-archive-${release}-automatic.asc`,
    `debian-archive-${release}-automatic.pgp`,
  ];
  for (const folder of KEY_FOLDERS) for (const name of names) if (await isReadable(join(folder, name))) return join(folder, name);
  return undefined;
}

async function isReadable(path) {
  return access(path, constants.R_OK).then(
    () => true,
    () => false,
  );
}

/** A mirror that is being updated, or a network that blinks, is asked again. */
async function retried(task) {
  for (let tries = 1; ; tries += 1) {
    try {
      return await task();
    } catch (error) {
      if (tries === APT_TRIES) throw error;
      await new Promise((resolve) => setTimeout(resolve, 1_000 * tries * (0.5 + Math.random())));
    }
  }
}

function oneLine(error) {
  return String(error.stderr || error.message || error)
    .trim()
    .replaceAll(/\s*\n\s*/g, "; ");
}

if (process.argv[1] !== undefined && fileURLToPath(import.meta.url) === process.argv[1]) {
  try {
    console.log(JSON.stringify(await ensureNatsServers()));
  } catch (error) {
    console.error(error.message);
    process.exitCode = 1;
  }
}
