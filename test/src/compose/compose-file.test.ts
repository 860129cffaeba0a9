/** What the compose file, the Dockerfiles and deploy/ say, held against the packages, the command and the documents. No engine is needed. */

import { once } from "node:events";
import { mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ROOT, readDocument } from "../docs/markdown.js";
import { type CliProcess, runCli, startCli } from "../kit/cli-process.js";
import { eventually } from "../kit/eventually.js";
import { freePort } from "../kit/nats-server.js";
import { run } from "./run-program.js";
import { baseImagesOf } from "./stand-in-images.js";

const compose = readDocument("docker-compose.yml");
const dockerfile = readDocument("Dockerfile");
const natsDockerfile = readDocument("deploy/nats/Dockerfile");
const natsConfig = readDocument("deploy/nats/nats-server.conf");
const operations = readDocument("docs/operations.md");

interface Manifest {
  readonly version: string;
  readonly name: string;
  readonly workspaces: readonly string[];
  readonly dependencies?: Readonly<Record<string, string>>;
}

const manifestOf = (folder: string): Manifest => JSON.parse(readDocument(join(folder, "package.json")));

/** The lines below a key that stands in the first column or, with two spaces before it, below `services:`. */
function block(key: string): string {
  const indent = key.startsWith("x-") ? "" : "  ";
  const lines = compose.split("\n");
  const from = lines.findIndex((line) => line.startsWith(`${indent}${key}:`));
  if (from < 0) throw new Error(`docker-compose.yml has no ${key}`);
  const length = lines.slice(from + 1).findIndex((line) => line.trim() !== "" && !line.startsWith(`${indent}  `));
  return lines.slice(from + 1, length < 0 ? undefined : from + 1 + length).join("\n");
}

/** What a program is started with, from either way to write a list. */
function commandIn(text: string): readonly string[] {
  const inline = /^ +command: (\[.*\])$/m.exec(text)?.[1];
  if (inline !== undefined) return JSON.parse(inline);
  const listed = /^( +)command:\n((?:\1 {2}- .*\n?)+)/m.exec(text)?.[2] ?? "";
  return [...listed.matchAll(/- (.+)/g)].map(([, word = ""]) => word);
}

const secondsIn = (text: string, key: string): number => Number(new RegExp(`^ +${key}: (\\d+)s$`, "m").exec(text)?.[1]);

describe("docker-compose.yml", () => {
  it.each([
    ["broker", "x-broker"],
    ["run", "runner"],
  ])("starts `toolrunner %s` with options that it has", async (name, key) => {
    const [command, ...args] = commandIn(block(key));
    expect(command).toBe(name);
    const options = args.filter((arg) => arg.startsWith("--")).map((arg) => arg.split("=")[0] ?? "");
    expect(options.length).toBeGreaterThan(2);
    const { stdout } = await runCli([name, "--help"], { cwd: tmpdir() });
    for (const option of options) expect(stdout).toMatch(new RegExp(`${option}\\b`));
  });

  it.each([
    ["x-broker", /"--drain-seconds", "(\d+)"/],
    ["runner", /--drain-seconds=(\d+)/],
  ])("%s has more time to stop than its drain takes, closing included", (key, drain) => {
    const seconds = Number(drain.exec(block(key))?.[1]);
    expect(seconds).toBeGreaterThan(0);
    expect(secondsIn(block(key), "stop_grace_period")).toBeGreaterThanOrEqual(seconds + 5);
  });

  it("has no secret of its own: each must be set, and none has a default", () => {
    for (const secret of ["TOOLRUNNER_BOOTSTRAP_KEY", "TOOLRUNNER_NATS_PASSWORD"]) {
      const uses = [...compose.matchAll(new RegExp(`\\$\\{${secret}([^}]*)\\}`, "g"))].map(([, rest]) => rest);
      expect(uses.filter((rest) => rest !== "")).toEqual([`:?set ${secret} in .env - the head of docker-compose.yml has the command`]);
      expect(compose.split("\nx-service")[0]).toContain(`${secret}=%s`);
      expect(operations).toContain(secret);
    }
    expect(natsConfig).not.toMatch(/password: (?!\$NATS_PASSWORD)/);
  });

  it("uses variables that the command or deploy/ reads", async () => {
    const readers = [
      readDocument("cli/src/connect/connection.ts"),
      readDocument("cli/src/commands/broker-commands.ts"),
      readDocument("deploy/provision.mjs"),
    ].join("\n");
    const names = [...compose.matchAll(/^ +(TOOLRUNNER_\w+): /gm)].map(([, name = ""]) => name);
    expect([...new Set(names)].sort()).toEqual([
      "TOOLRUNNER_BOOTSTRAP_KEY",
      "TOOLRUNNER_KEY",
      "TOOLRUNNER_NATS_URL",
      "TOOLRUNNER_RUNNER_URL",
      "TOOLRUNNER_URL",
    ]);
    for (const name of names) expect(readers).toContain(name);
  });

  it("publishes ports on loopback only, and none of NATS", () => {
    const ports = [...compose.matchAll(/^ +- "([^"]*:\d+)"$/gm)].map(([, port]) => port);
    expect(ports).toHaveLength(4);
    for (const port of ports) expect(port).toMatch(/^127\.0\.0\.1:/);
    expect(block("x-nats")).not.toContain("ports");
    expect(compose).toContain("backplane: { internal: true }");
  });

  it("asks for the durability that docs/operations.md promises for three servers of one machine", () => {
    expect(commandIn(block("x-broker")).join(" ")).toContain("--replicas 3");
    expect(natsConfig).toMatch(/^ {2}sync_interval: always$/m);
    expect(operations).toMatch(/\| NATS, 3 replicas \|.*with `sync_interval: always` also that power cut \|/);
    const servers = ["nats-1", "nats-2", "nats-3"];
    for (const server of servers) {
      expect(block(server)).toContain(`volumes: ["${server}:/data"]`);
      // Each names the others, and not itself.
      for (const other of servers) expect(block(server).includes(`@${other}:6222`)).toBe(other !== server);
      expect(block("x-broker")).toMatch(new RegExp(`[@/]${server}:4222`));
    }
    const [floor = ""] = /(?<=nats-server )2\.10\.\d+(?= or newer on \*\*every\*\* server)/.exec(operations) ?? [];
    expect(baseImagesOf(natsDockerfile)).toEqual([`nats:${floor}-alpine`]);
    expect(block("x-nats")).toContain(`image: toolrunner-nats:${floor}`);
  });

  it("lets every service that stays be checked, started again, kept small and rotated", () => {
    for (const key of ["x-nats", "x-broker", "runner"]) {
      expect(block(key)).toMatch(/healthcheck:/);
      expect(block(key)).toMatch(/mem_limit: /);
    }
    expect(block("x-service")).toMatch(/restart: unless-stopped\n +read_only: true\n +cap_drop: \[ALL\]/);
    expect(block("x-service")).toMatch(/max-size: 10m\n +max-file: "3"/);
    for (const key of ["x-nats", "x-toolrunner"]) expect(block(key)).toContain("<<: *service");
  });
});

describe("Dockerfile", () => {
  it("is of this version, and compose builds and runs it under that name", () => {
    const { version } = manifestOf(".");
    expect(dockerfile).toContain(`ARG VERSION=${version}\n`);
    expect(block("x-toolrunner")).toContain(`image: toolrunner:${version}\n`);
  });

  it("begins with images of one pinned Node that the packages accept", () => {
    const [full = "", slim = ""] = baseImagesOf(dockerfile);
    const [, minor, patch] = /^node:20\.(\d+)\.(\d+)-bookworm$/.exec(full) ?? [];
    expect(Number(minor) * 1_000 + Number(patch)).toBeGreaterThanOrEqual(19_000);
    expect(slim).toBe(`${full}-slim`);
  });

  it("gives npm the manifest of every workspace, before any source, and packs what the command needs", () => {
    const copied = [...dockerfile.matchAll(/^COPY (\S+)\/package\.json \S+$/gm)].map(([, folder]) => folder);
    expect(copied.sort()).toEqual([...manifestOf(".").workspaces].sort());
    const folders = new Map(manifestOf(".").workspaces.map((folder) => [manifestOf(folder).name, folder]));
    const needed = new Set<string>();
    const follow = (folder: string): void => {
      if (needed.has(folder)) return;
      needed.add(folder);
      for (const name of Object.keys(manifestOf(folder).dependencies ?? {})) if (folders.has(name)) follow(folders.get(name) ?? "");
    };
    follow("cli");
    const packed = /for package in ([^;]+);/.exec(dockerfile)?.[1]?.split(" ") ?? [];
    expect(packed.sort()).toEqual([...needed].sort());
    expect(dockerfile.indexOf("npm ci --ignore-scripts\n")).toBeLessThan(dockerfile.indexOf("COPY . .\n"));
  });

  it("runs as a number that is not root, behind an init, with a check that needs no other program", () => {
    const runtime = dockerfile.slice(dockerfile.lastIndexOf("\nFROM "));
    expect(runtime).toMatch(/^USER 1000:1000$/m);
    expect(runtime).toMatch(/^ENTRYPOINT \["tini", "--", "toolrunner"\]$/m);
    expect(runtime).toMatch(/^HEALTHCHECK .* CMD \["node", "\/opt\/toolrunner\/deploy\/healthcheck\.mjs"\]$/m);
    expect(runtime).toContain("org.opencontainers.image.licenses");
  });

  it("is given sources and manifests only: no key, no data, no test", () => {
    const [first, ...rest] = readDocument(".dockerignore")
      .split("\n")
      .filter((line) => line !== "" && !line.startsWith("#"));
    expect(first).toBe("*");
    expect(rest.filter((line) => /env|toolrunner/.test(line))).toEqual(["**/.toolrunner", "**/.env"]);
    expect(readDocument(".gitignore").split("\n")).toContain(".env");
  });
});

describe("deploy/", () => {
  let folder: string;
  let dev: CliProcess;
  let runner: CliProcess;
  const shop = join(ROOT, "deploy", "shop");
  const keyFile = () => join(folder, "key");
  const provision = (from = shop, env: Readonly<Record<string, string>> = {}) =>
    run(process.execPath, [join(ROOT, "deploy", "provision.mjs"), from, keyFile()], {
      env: { TOOLRUNNER_URL: String(dev.ready.http), TOOLRUNNER_KEY: String(dev.ready.agent_key), ...env },
    });
  const check = (target: string, port: string | number) =>
    run(process.execPath, [join(ROOT, "deploy", "healthcheck.mjs"), ...(target === "" ? [] : [target])], {
      env: { TOOLRUNNER_HEALTH_PORT: String(port) },
    });

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "toolrunner-deploy-"));
    dev = await startCli(["dev", "--port", "0", "--no-grpc", "--json"], { cwd: folder });
    runner = await startCli(
      ["run", join(shop, "tools.ts"), "--binding", "shop", "--ready-file", join(folder, "ready"), "--json", "--log-level", "silent"],
      { cwd: folder },
    );
  });
  afterAll(async () => {
    await runner?.stop();
    await dev?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  it("has a toolset that says what its tools say of themselves, and provisions it once", async () => {
    // A development broker asks the runner for its definitions, and keeps them as a toolset.
    await eventually("the toolset of the runner", async () => (await cliJson(["toolsets", "list"])).includes('"shop"'));
    const first = await provision();
    expect(first.stderr).toBe("");
    expect(first.stdout).toMatch(/^binding shop is there\ntoolset shop is there, version 1\na runner key is in \S+: key_\w+\n$/);
    expect((await stat(keyFile())).mode & 0o777).toBe(0o600);
    const key = await readFile(keyFile(), "utf8");
    const second = await provision();
    expect(second.stdout).toMatch(/toolset shop is there, version 1\nthe runner key in \S+ is key_\w+\n$/);
    expect(await readFile(keyFile(), "utf8")).toBe(key);
  });

  it("makes another key when the one in the file was revoked, and a runner can use it from there", async () => {
    await provision();
    const earlier = await readFile(keyFile(), "utf8");
    await cliJson(["keys", "delete", `key_${/^trr_([a-z0-9]+)_/.exec(earlier)?.[1]}`, "--binding", "shop"]);
    expect((await provision()).stdout).toMatch(/a runner key is in/);
    expect(await readFile(keyFile(), "utf8")).not.toBe(earlier);
    const args = ["run", join(shop, "tools.ts"), "--binding", "shop", "--url", String(dev.ready.http), "--token-file", keyFile(), "--json"];
    const second = await startCli([...args, "--log-level", "silent", "--journal", join(folder, "second")], { cwd: tmpdir() });
    expect(second.ready).toMatchObject({ event: "ready" });
    expect(await second.stop()).toBe(0);
  });

  it("sets tools back to what the file says, as a new version", async () => {
    const changed = JSON.parse(await readFile(join(shop, "toolset.json"), "utf8"));
    const other = await mkdtemp(join(folder, "other-"));
    await writeFile(join(other, "binding.json"), await readFile(join(shop, "binding.json")));
    await writeFile(join(other, "toolset.json"), JSON.stringify({ ...changed, tools: changed.tools.slice(1) }));
    expect((await provision(other)).stdout).toContain("toolset shop saved, version 2");
    expect((await provision()).stdout).toContain("toolset shop saved, version 3");
  });

  it("says what is wrong, in one line and with exit code 1, when it may not or cannot provision", async () => {
    const refused = await provision(shop, { TOOLRUNNER_KEY: "wrong" });
    expect(refused.code).toBe(1);
    expect(refused.stderr).toMatch(/^provision: PUT \/v1\/bindings\/shop: 401 .+\n$/);
    expect(refused.stderr).not.toContain("wrong");
    const missing = await provision(join(folder, "nowhere"));
    expect({ code: missing.code, lines: missing.stderr.trim().split("\n").length }).toEqual({ code: 1, lines: 1 });
    expect(missing.stderr).toContain("binding.json");
  });

  it("leaves no key behind that it could not write", async () => {
    const before = await cliJson(["keys", "list", "--binding", "shop"]);
    const { code, stderr } = await run(process.execPath, [join(ROOT, "deploy", "provision.mjs"), shop, join(folder, "no", "folder")], {
      env: { TOOLRUNNER_URL: String(dev.ready.http), TOOLRUNNER_KEY: String(dev.ready.agent_key) },
    });
    expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringContaining("the runner key cannot be written") });
    const valid = (text: string) => JSON.parse(text).data.filter((key: { readonly revoked_at: unknown }) => key.revoked_at === null).length;
    expect(valid(await cliJson(["keys", "list", "--binding", "shop"]))).toBe(valid(before));
  });

  it("has a health check that tells a broker that works from one that does not, and from none", async () => {
    const port = new URL(String(dev.ready.http)).port;
    for (const target of ["", "/healthz", "/readyz"]) expect(await check(target, port)).toEqual({ code: 0, stdout: "", stderr: "" });
    const none = await check("/readyz", await freePort());
    expect({ ...none, stdout: "" }).toEqual({ code: 1, stdout: "", stderr: "" });
    expect(none.stdout).toContain("ECONNREFUSED");
    const drains = createServer((_request, response) => response.writeHead(503).end('{"status":"not_ready"}')).listen(0, "127.0.0.1");
    const silent = createServer(() => undefined).listen(0, "127.0.0.1");
    await Promise.all([drains, silent].map((server) => once(server, "listening")));
    try {
      const portOf = (server: typeof drains) => (server.address() as AddressInfo).port;
      expect(await check("/readyz", portOf(drains))).toMatchObject({ code: 1, stdout: '503 {"status":"not_ready"}\n' });
      expect(await check("/readyz", portOf(silent))).toMatchObject({ code: 1 });
    } finally {
      for (const server of [drains, silent]) {
        server.closeAllConnections();
        server.close();
      }
    }
  });

  it("has a health check of runners: the file is there while one takes calls", async () => {
    expect(await check(`file:${join(folder, "ready")}`, 1)).toEqual({ code: 0, stdout: "", stderr: "" });
    expect(await runner.stop()).toBe(0);
    expect(await check(`file:${join(folder, "ready")}`, 1)).toMatchObject({ code: 1, stdout: expect.stringContaining("not ready") });
  });

  async function cliJson(args: readonly string[]): Promise<string> {
    const { code, stdout, stderr } = await runCli([...args, "--json"], {
      cwd: tmpdir(),
      env: { TOOLRUNNER_URL: String(dev.ready.http), TOOLRUNNER_KEY: String(dev.ready.agent_key) },
    });
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    return stdout;
  }
});
