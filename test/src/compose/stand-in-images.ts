/**
 * Images under the names that Dockerfile and deploy/nats/Dockerfile begin with, for engines that reach no registry of images:
 * Debian from this machine's mirror, this machine's Node, the npm that comes with that Node in the real image, and the nats-server of
 * the tests. They have what the files use of the real ones: paths, the user 1000, `wget` beside nats-server.
 *
 * Invariant: what is kept in `.cache/containers` under its final name is complete.
 */
import { chmod, cp, mkdir, mkdtemp, readdir, readFile, rename, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { ensureNatsServer } from "../../../scripts/ensure-nats-server.mjs";
import { ROOT } from "../docs/markdown.js";
import { output, run } from "./run-program.js";

const CACHE = join(ROOT, ".cache", "containers");
const PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/** That of the image node:20.20.2. */
const NPM = "npm@10.8.2";
const AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt";
const PROGRAMS = ["debootstrap", "busybox", "tar"] as const;

/** Why the stand-ins cannot be made here; undefined when they can. */
export async function whyNoStandIns(): Promise<string | undefined> {
  const missing: string[] = [];
  for (const program of PROGRAMS) if ((await run("sh", ["-c", `command -v ${program}`])).code !== 0) missing.push(program);
  if (missing.length > 0)
    return `not installed: ${missing.join(", ")}. apt-get install -y --no-install-recommends debootstrap busybox-static`;
  if (!(await stat(join(dirname(dirname(process.execPath)), "include", "node")).catch(() => undefined)))
    return "this Node has no headers beside it, which better-sqlite3 is compiled against";
  return undefined;
}

/** The images that a Dockerfile begins its stages with. Arguments are those that it declares with a default. */
export function baseImagesOf(dockerfile: string): readonly string[] {
  const values = new Map([...dockerfile.matchAll(/^ARG (\w+)=(\S+)$/gm)].map(([, name = "", value = ""]) => [name, value]));
  const stages = new Set([...dockerfile.matchAll(/^FROM \S+ AS (\S+)$/gm)].map(([, stage = ""]) => stage));
  const images = [...dockerfile.matchAll(/^FROM (\S+)/gm)].map(([, image = ""]) =>
    image.replace(/\$\{(\w+)\}/g, (_, name: string) => values.get(name) ?? ""),
  );
  return [...new Set(images)].filter((image) => !stages.has(image));
}

/** Makes the images in the engine at `host`, under the names that the two Dockerfiles have now. */
export async function makeStandIns(host: string): Promise<void> {
  const names = [
    ...baseImagesOf(await readFile(join(ROOT, "Dockerfile"), "utf8")),
    ...baseImagesOf(await readFile(join(ROOT, "deploy", "nats", "Dockerfile"), "utf8")),
  ];
  for (const name of names) {
    if (/^node:[\d.]+-\w+-slim$/.test(name)) await makeNode(name, "slim", host);
    else if (/^node:[\d.]+-\w+$/.test(name)) await makeNode(name, "full", host);
    else if (/^nats:[\d.]+-alpine$/.test(name)) await makeNats(name, host);
    else throw new Error(`there is no stand-in for the image ${name}`);
  }
}

async function makeNode(name: string, kind: "slim" | "full", host: string): Promise<void> {
  const [, version, release = ""] = /^node:([\d.]+)-(\w+)/.exec(name) ?? [];
  if (`v${version}` !== process.version) throw new Error(`${name} cannot be made of this machine's Node ${process.version}`);
  const archive = join(CACHE, `node-${version}-${release}-${kind}.tar.gz`);
  if (!(await exists(archive))) await packed(archive, (root) => nodeRoot(root, release, kind));
  const certificates = kind === "full" ? ["--change", `ENV NODE_EXTRA_CA_CERTS=${AUTHORITIES}`] : [];
  await imported(archive, name, ["--change", `ENV ${PATH}`, "--change", 'CMD ["node"]', ...certificates], host);
}

async function nodeRoot(root: string, release: string, kind: "slim" | "full"): Promise<void> {
  const packages = ["ca-certificates", ...(kind === "full" ? ["python3", "make", "g++"] : [])];
  await output("debootstrap", ["--variant=minbase", `--include=${packages.join(",")}`, release, root]);
  for (const folder of ["var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man"])
    for (const entry of await readdir(join(root, folder))) await rm(join(root, folder, entry), { recursive: true });
  // As Debian's images have it: what apt downloads is not kept.
  await writeFile(
    join(root, "etc/apt/apt.conf.d/docker-clean"),
    'APT::Update::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin || true"; };\n' +
      'DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin || true"; };\nDir::Cache::pkgcache ""; Dir::Cache::srcpkgcache "";\n',
  );
  await cp(process.execPath, join(root, "usr/local/bin/node"));
  await writeFile(join(root, "etc/passwd"), "node:x:1000:1000::/home/node:/bin/bash\n", { flag: "a" });
  await writeFile(join(root, "etc/group"), "node:x:1000:\n", { flag: "a" });
  if (kind === "slim") return;
  await cp(AUTHORITIES, join(root, AUTHORITIES));
  await cp(join(dirname(dirname(process.execPath)), "include", "node"), join(root, "usr/local/include/node"), { recursive: true });
  const modules = join(root, "usr/local/lib/node_modules");
  await mkdir(modules, { recursive: true });
  const [tarball = ""] = (await output("npm", ["pack", NPM, "--silent", "--pack-destination", modules], { cwd: tmpdir() }))
    .trim()
    .split("\n");
  await output("tar", ["-xzf", join(modules, tarball), "-C", modules]);
  await rm(join(modules, tarball));
  await rename(join(modules, "package"), join(modules, "npm"));
  for (const command of ["npm", "npx"]) {
    await chmod(join(modules, "npm", "bin", `${command}-cli.js`), 0o755);
    await symlink(`../lib/node_modules/npm/bin/${command}-cli.js`, join(root, "usr/local/bin", command));
  }
}

async function makeNats(name: string, host: string): Promise<void> {
  const binary = await ensureNatsServer("2.10");
  const [, wanted] = /^nats:([\d.]+)-/.exec(name) ?? [];
  const version = await output(binary, ["--version"]);
  if (!version.includes(`v${wanted}`)) throw new Error(`${name} cannot be made of ${version.trim()}`);
  const archive = join(CACHE, `nats-${wanted}.tar.gz`);
  if (!(await exists(archive))) await packed(archive, (root) => natsRoot(root, binary));
  await imported(archive, name, ["--change", `ENV ${PATH}`], host);
}

async function natsRoot(root: string, binary: string): Promise<void> {
  for (const folder of ["bin", "usr/local/bin", "etc/nats", "proc", "sys", "dev", "tmp"])
    await mkdir(join(root, folder), { recursive: true });
  await cp((await output("sh", ["-c", "command -v busybox"])).trim(), join(root, "bin/busybox"));
  for (const applet of ["sh", "mkdir", "chown", "chmod", "wget"]) await symlink("busybox", join(root, "bin", applet));
  await cp(binary, join(root, "usr/local/bin/nats-server"));
  const libraries = [...(await output("ldd", [binary])).matchAll(/(?:=> |^\s*)(\/\S+) \(/gm)].map(([, path = ""]) => path);
  for (const path of libraries) {
    await mkdir(join(root, dirname(path)), { recursive: true });
    await cp(path, join(root, path), { dereference: true });
  }
  await writeFile(join(root, "etc/passwd"), "root:x:0:0::/root:/bin/sh\n");
  await writeFile(join(root, "etc/group"), "root:x:0:\n");
}

/** Lets `make` fill a folder, and keeps it as an archive. */
async function packed(archive: string, make: (root: string) => Promise<void>): Promise<void> {
  await mkdir(CACHE, { recursive: true });
  const work = await mkdtemp(join(tmpdir(), "toolrunner-image-"));
  try {
    const root = join(work, "root");
    await mkdir(root, { mode: 0o755 });
    await make(root);
    await output("tar", ["-C", root, "-c", "--use-compress-program=gzip -1", "-f", `${archive}.${process.pid}`, "."]);
    await rename(`${archive}.${process.pid}`, archive);
  } finally {
    await rm(work, { recursive: true, force: true });
    await rm(`${archive}.${process.pid}`, { force: true });
  }
}

async function imported(archive: string, name: string, changes: readonly string[], host: string): Promise<void> {
  await output("docker", ["import", ...changes, archive, name], { env: { DOCKER_HOST: host } });
}

async function exists(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined)) !== undefined;
}
