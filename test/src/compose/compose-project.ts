/**
 * The compose file as a reader has it: in a folder of its own, with an `.env`, brought up by the machine's own compose.
 *
 * Invariant: everything that is made in the engine bears the project's name, so `down` and the checks after it see all of it.
 */
import { randomBytes } from "node:crypto";
import { cp, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ROOT } from "../docs/markdown.js";
import { eventually } from "../kit/eventually.js";
import { freePort } from "../kit/nats-server.js";
import { type Ended, output, type RunOptions, run } from "./run-program.js";

/** A container's state, as far as tests look at it. */
export interface ContainerState {
  readonly Status: string;
  readonly ExitCode: number;
  readonly Health?: { readonly Status: string; readonly Log: readonly { readonly Output: string }[] };
}

/** The project. */
export interface ComposeProject {
  readonly name: string;
  readonly folder: string;
  /** Address of each broker, as published on loopback. */
  readonly urls: readonly [string, string];
  readonly adminKey: string;
  /** `docker compose ARGS`, whose exit code is looked at by the caller. */
  compose(args: readonly string[], options?: RunOptions): Promise<Ended>;
  /** The same; rejects when it fails, and answers what it printed. */
  composed(args: readonly string[], options?: RunOptions): Promise<string>;
  /** `docker ARGS`. */
  docker(...args: readonly string[]): Promise<string>;
  /** What a service printed, on standard output and standard error. */
  logs(service: string, ...options: readonly string[]): Promise<string>;
  /** The container of a service, stopped or not. */
  container(service: string): Promise<string>;
  state(service: string): Promise<ContainerState>;
  /** Resolves when the services are healthy; rejects with what their checks and logs said. */
  healthy(services: readonly string[], withinMs?: number): Promise<void>;
  /** Names of what the engine still has of this project: containers, networks and volumes. */
  leftovers(): Promise<readonly string[]>;
  /** `down -v`, and the folder is gone. */
  dispose(): Promise<void>;
}

/** The command: compose as a plugin of `docker`, or of its own. Undefined when there is neither. */
export async function composeCommand(): Promise<readonly [string, ...string[]] | undefined> {
  if ((await run("docker", ["compose", "version"])).code === 0) return ["docker", "compose"];
  if ((await run("docker-compose", ["version"])).code === 0) return ["docker-compose"];
  return undefined;
}

/** Copies what the compose file needs, and writes the `.env`. */
export async function createProject(host: string): Promise<ComposeProject> {
  const command = await composeCommand();
  if (command === undefined) throw new Error("there is neither `docker compose` nor `docker-compose`");
  const [program, ...first] = command;
  const folder = await mkdtemp(join(tmpdir(), "toolrunner-compose-"));
  const name = `toolrunnertest${randomBytes(4).toString("hex")}`;
  for (const each of ["docker-compose.yml", "deploy"]) await cp(join(ROOT, each), join(folder, each), { recursive: true });
  const ports = new Set<number>();
  while (ports.size < 4) ports.add(await freePort());
  const [http1 = 0, http2 = 0, grpc1 = 0, grpc2 = 0] = ports;
  const adminKey = randomBytes(32).toString("hex");
  const settings = {
    TOOLRUNNER_BOOTSTRAP_KEY: adminKey,
    TOOLRUNNER_NATS_PASSWORD: randomBytes(32).toString("hex"),
    TOOLRUNNER_PORT_1: http1,
    TOOLRUNNER_PORT_2: http2,
    TOOLRUNNER_GRPC_PORT_1: grpc1,
    TOOLRUNNER_GRPC_PORT_2: grpc2,
  };
  await writeFile(
    join(folder, ".env"),
    Object.entries(settings)
      .map(([key, value]) => `${key}=${value}\n`)
      .join(""),
  );
  // What the shell has would count before the file.
  const unset = Object.fromEntries(Object.keys(process.env).flatMap((key) => (key.startsWith("TOOLRUNNER_") ? [[key, undefined]] : [])));
  const env = {
    ...unset,
    DOCKER_HOST: host,
    COMPOSE_PROJECT_NAME: name,
    COMPOSE_HTTP_TIMEOUT: "240",
    DOCKER_BUILDKIT: (await hasBuildx()) ? "1" : "0",
  };

  const compose = (args: readonly string[], options: RunOptions = {}): Promise<Ended> =>
    run(program, [...first, ...args], { cwd: folder, ...options, env: { ...env, ...options.env } });
  const docker = (...args: readonly string[]): Promise<string> => output("docker", args, { env });
  const container = async (service: string): Promise<string> => {
    const labels = [`com.docker.compose.project=${name}`, `com.docker.compose.service=${service}`, "com.docker.compose.oneoff=False"];
    const id = (await docker("ps", "--all", "--quiet", ...labels.flatMap((label) => ["--filter", `label=${label}`]))).trim();
    if (id === "") throw new Error(`there is no container of the service ${service}`);
    return id;
  };
  const state = async (service: string): Promise<ContainerState> =>
    JSON.parse(await docker("inspect", "--format", "{{json .State}}", await container(service))) as ContainerState;
  const logs = async (service: string, ...options: readonly string[]): Promise<string> => {
    const { stdout, stderr } = await run("docker", ["logs", ...options, await container(service)], { env });
    return `${stdout}${stderr}`;
  };

  return {
    name,
    folder,
    urls: [`http://127.0.0.1:${http1}`, `http://127.0.0.1:${http2}`],
    adminKey,
    compose,
    async composed(args, options) {
      const { code, stdout, stderr } = await compose(args, options);
      if (code !== 0) throw new Error(`compose ${args.join(" ")} ended with ${code}: ${stderr.slice(-4_000)}`);
      return stdout;
    },
    docker,
    logs,
    container,
    state,
    async healthy(services, withinMs = 90_000) {
      for (const service of services) {
        await eventually(
          `${service} healthy`,
          async () => (await state(service)).Health?.Status === "healthy" || (await pause()),
          withinMs,
        ).catch(async (cause: Error) => {
          throw new Error(`${cause.message}: ${JSON.stringify(await state(service))}\n${await logs(service, "--tail", "20")}`);
        });
      }
    },
    async leftovers() {
      const filter = ["--filter", `label=com.docker.compose.project=${name}`];
      const found = await Promise.all([
        docker("ps", "--all", "--format", "container {{.Names}}", ...filter),
        docker("network", "ls", "--format", "network {{.Name}}", ...filter),
        docker("volume", "ls", "--format", "volume {{.Name}}", ...filter),
      ]);
      return found.flatMap((text) => text.split("\n").filter((line) => line !== ""));
    },
    async dispose() {
      await compose(["down", "--volumes", "--remove-orphans", "--timeout", "5"]);
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Builds both images under the names of the compose file: from the stand-ins where the engine has nothing else. */
export async function buildImages(host: string, images: { readonly toolrunner: string; readonly nats: string }): Promise<void> {
  const env = { DOCKER_HOST: host, DOCKER_BUILDKIT: (await hasBuildx()) ? "1" : "0" };
  // The registry of packages is reached as from this machine.
  await output("docker", ["build", "--network", "host", "--tag", images.toolrunner, "."], { cwd: ROOT, env });
  await output("docker", ["build", "--tag", images.nats, "."], { cwd: join(ROOT, "deploy", "nats"), env });
}

async function hasBuildx(): Promise<boolean> {
  return (await run("docker", ["buildx", "version"])).code === 0;
}

/** Between two looks at a health: each one is a process. */
async function pause(): Promise<false> {
  await new Promise((resolve) => setTimeout(resolve, 200));
  return false;
}

/** Puts a product's own tools where the runner and the provisioning look for them. */
export async function putTools(project: ComposeProject, from: string): Promise<void> {
  await mkdir(join(project.folder, "deploy", "shop"), { recursive: true });
  for (const file of ["tools.ts", "toolset.json"]) await cp(join(from, file), join(project.folder, "deploy", "shop", file));
}
