/**
 * The compose file, brought up for real: three NATS servers, two brokers and a runner in containers, called from outside while parts
 * of it are stopped and killed.
 */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { createAgentClient } from "@toolrunner/agent-sdk";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ROOT } from "../docs/markdown.js";
import { runCli } from "../kit/cli-process.js";
import { eventually } from "../kit/eventually.js";
import { buildImages, type ComposeProject, composeCommand, createProject, putTools } from "./compose-project.js";
import { type Engine, startEngine, whyNoEngine } from "./own-engine.js";
import { makeStandIns, whyNoStandIns } from "./stand-in-images.js";
import { type LoadReport, startLoad } from "./steady-load.js";

const isLong = process.env.TOOLRUNNER_LONG === "1";
const title = "docker-compose.yml, up";
const NATS = ["nats-1", "nats-2", "nats-3"] as const;
const BROKERS = ["broker-1", "broker-2"] as const;
const STAY = [...NATS, ...BROKERS, "runner"] as const;
/** Calls may wait for the take-over from a broker that died without a word, and for the runner's next session. */
const GAP_MS = 20_000;
/** The journal's lock of a process that cannot be seen any more holds for a minute; the engine tries again in steps of up to a minute. */
const RUNNER_BACK_MS = 150_000;
const STARTS = "/var/lib/toolrunner/journal/starts";

/** Why it cannot be brought up on this machine. */
async function whyNot(): Promise<string | undefined> {
  const named = process.env.DOCKER_HOST !== undefined && process.env.DOCKER_HOST !== "";
  const engine = named ? undefined : ((await whyNoEngine()) ?? (await whyNoStandIns()));
  if (engine !== undefined) return engine;
  return (await composeCommand()) === undefined ? "there is neither `docker compose` nor `docker-compose`" : undefined;
}

const reason = isLong ? await whyNot() : "minutes of containers: npm run test:long";
const isRun = reason === undefined;

describe.skipIf(!isRun)(isRun ? title : `${title} [${reason}]`, { timeout: 240_000 }, () => {
  let engine: Engine;
  let project: ComposeProject;
  let agentKey = "";
  const figures: string[] = [];
  const note = (text: string): void => void figures.push(text);

  beforeAll(async () => {
    engine = await startEngine();
    project = await createProject(engine.host);
    const images: Readonly<Record<string, string>> = Object.fromEntries(
      [...(await readFile(join(ROOT, "docker-compose.yml"), "utf8")).matchAll(/^ {2}image: ((toolrunner[a-z-]*):\S+)$/gm)].map(
        ([, image = "", name = ""]) => [name, image],
      ),
    );
    const { toolrunner = "", "toolrunner-nats": nats = "" } = images;
    if (engine.own) await makeStandIns(engine.host);
    const begun = performance.now();
    await buildImages(engine.host, { toolrunner, nats });
    note(`build: ${seconds(begun)}`);
    for (const image of [toolrunner, nats]) {
      const bytes = Number(await project.docker("image", "inspect", "--format", "{{.Size}}", image));
      note(`image ${image}: ${(bytes / 1_000_000).toFixed(0)} MB`);
    }
  }, 1_800_000);

  afterAll(async () => {
    for (const line of figures) process.stdout.write(`  compose: ${line}\n`);
    await project?.dispose();
    await engine?.stop();
  }, 180_000);

  const seconds = (begun: number): string => `${((performance.now() - begun) / 1000).toFixed(1)} s`;
  const client = (index: number, key = agentKey) => createAgentClient({ url: project.urls[index] ?? "", key });
  const cli = (args: readonly string[], stdin?: string): Promise<string> =>
    project.composed(["run", "--rm", "-T", "cli", ...args], stdin === undefined ? {} : { stdin });

  /** Calls whose handler has started, each as often as it did. */
  async function starts(tool: string): Promise<ReadonlyMap<string, number>> {
    const text = await project.docker("exec", await project.container("runner"), "cat", STARTS);
    const counts = new Map<string, number>();
    for (const line of text.split("\n")) {
      const [name, order = ""] = line.split(" ");
      if (name === tool) counts.set(order, (counts.get(order) ?? 0) + 1);
    }
    return counts;
  }

  /** The broker that has the runner's session. */
  async function holder(): Promise<(typeof BROKERS)[number]> {
    const runners = await eventually("the runner's session", async () => {
      const answer = await fetch(`${project.urls[0]}/v1/runners`, { headers: { authorization: `Bearer ${project.adminKey}` } });
      const { data } = (await answer.json()) as { readonly data: readonly { readonly broker_id: string }[] };
      return data.length === 1 && data;
    });
    for (const broker of BROKERS) {
      const ids = [...(await project.logs(broker)).matchAll(/"broker_id":"(\w+)"[^\n]*"event":"broker_started"/g)].map(([, id]) => id);
      if (ids.at(-1) === runners[0]?.broker_id) return broker;
    }
    throw new Error(`no broker here is ${runners[0]?.broker_id}`);
  }

  /** Every acknowledged call succeeded, and its handler was started once. */
  async function expectOnce(what: string, { calls, repeats, longestGapMs }: LoadReport): Promise<void> {
    note(`${what}: ${calls.length} calls, ${repeats} requests repeated, longest gap ${(longestGapMs / 1000).toFixed(1)} s`);
    expect(calls.filter(({ state }) => state !== "succeeded")).toEqual([]);
    expect(new Set(calls.map(({ id }) => id)).size).toBe(calls.length);
    const charged = await starts("charge");
    const wrong = calls.filter(({ tool, order }) => tool === "charge" && charged.get(order) !== 1);
    expect(wrong).toEqual([]);
    expect(longestGapMs).toBeLessThan(GAP_MS);
  }

  it.each(["TOOLRUNNER_BOOTSTRAP_KEY", "TOOLRUNNER_NATS_PASSWORD"])("is refused without %s, which has no default", async (variable) => {
    const settings = (await readFile(join(project.folder, ".env"), "utf8")).split("\n").filter((line) => !line.startsWith(`${variable}=`));
    const env = Object.fromEntries(settings.filter((line) => line !== "").map((line) => line.split("=") as [string, string]));
    const file = join(project.folder, "docker-compose.yml");
    const { code, stderr } = await project.compose(["--project-directory", "/", "--file", file, "config"], { env, cwd: "/" });
    expect(code).not.toBe(0);
    expect(stderr).toContain(`set ${variable} in .env`);
  });

  it("comes up healthy with one command, and provisions itself", async () => {
    const begun = performance.now();
    try {
      await project.composed(["up", "--detach", "--no-build"]);
    } catch (cause) {
      const logs = await Promise.all(["nats-1", "nats-2", "nats-3", "broker-1"].map((service) => project.logs(service, "--tail", "40")));
      throw new Error(`compose up failed; its logs:\n${logs.join("\n")}`, { cause });
    }
    await project.healthy(STAY);
    note(`up to all healthy: ${seconds(begun)}`);
    expect(await project.state("provision")).toMatchObject({ Status: "exited", ExitCode: 0 });
  });

  it("runs without root, without capabilities and on a file system that is read-only", async () => {
    for (const service of STAY) {
      const container = await project.container(service);
      const { Config, HostConfig } = JSON.parse(await project.docker("inspect", "--format", "{{json .}}", container)) as {
        readonly Config: { readonly User: string };
        readonly HostConfig: Readonly<Record<string, unknown>>;
      };
      expect({ service, user: Config.User, ...HostConfig }).toMatchObject({
        user: "1000:1000",
        ReadonlyRootfs: true,
        CapDrop: ["ALL"],
        SecurityOpt: ["no-new-privileges:true"],
        LogConfig: { Type: "json-file", Config: { "max-size": "10m", "max-file": "3" } },
      });
      expect(HostConfig["Memory"]).toBeGreaterThan(0);
    }
    const status = await project.docker("exec", await project.container("broker-1"), "cat", "/proc/1/status");
    expect(status).toMatch(/^Uid:\s+1000\s+1000\s+1000\s+1000$/m);
    expect(status).toMatch(/^CapEff:\s+0+$/m);
  });

  it("has an image of what is published and what that needs: no test, no source, no tool of development", async () => {
    const found = await project.docker("exec", await project.container("broker-1"), "find", "/opt/toolrunner", "-name", "package.json");
    const packages = found
      .split("\n")
      .flatMap((path) => /^\/opt\/toolrunner\/(?:node_modules\/)?(.+)\/package\.json$/.exec(path)?.[1] ?? []);
    expect(packages).toEqual(expect.arrayContaining(["broker", "cli", "runner-sdk", "fastify", "better-sqlite3", "@nats-io/jetstream"]));
    expect(
      packages.filter((name) => /^(?:vitest|vite|typescript|playwright-core|@biomejs\/.+|@vitest\/.+|test|bench)$/.test(name)),
    ).toEqual([]);
    const own = ["find", "/opt/toolrunner", "-path", "*/node_modules", "-prune", "-o", "-name", "*.ts", "-print"];
    const sources = (await project.docker("exec", await project.container("broker-1"), ...own)).split("\n").filter((path) => path !== "");
    expect(sources.length).toBeGreaterThan(0);
    expect(sources.filter((path) => !path.endsWith(".d.ts") || path.includes(".test."))).toEqual([]);
  });

  it("publishes on loopback only", async () => {
    for (const broker of BROKERS) {
      const ports = await project.docker("port", await project.container(broker));
      expect(ports.trim().split("\n")).toEqual([expect.stringContaining("127.0.0.1:"), expect.stringContaining("127.0.0.1:")]);
    }
    for (const server of NATS) expect(await project.docker("port", await project.container(server))).toBe("");
  });

  it("takes a call from outside through either broker, and from the command in a container", async () => {
    const made = JSON.parse(await cli(["keys", "put", "-", "--json"], '{"name":"support agent","scopes":["calls:write","calls:read"]}'));
    agentKey = String(made.key);
    for (const index of [0, 1]) {
      const call = await client(index).call({
        toolset: "shop",
        tool: "refund",
        arguments: { order: `A${index}` },
        idempotencyKey: `a-${index}`,
      });
      expect(call).toMatchObject({ state: "succeeded", result: { order: `A${index}`, refunded: true } });
      // The other broker knows it.
      expect(await client(1 - index).get(call.id)).toMatchObject({ id: call.id, state: "succeeded" });
    }
    expect(await cli(["call", "stock", "--toolset", "shop", "--args", '{"article":"lamp"}'])).toContain('"left": 3');
    const outside = await runCli(["call", "stock", "--toolset", "shop", "--args", '{"article":"lamp"}', "--json"], {
      cwd: project.folder,
      env: { TOOLRUNNER_URL: project.urls[1], TOOLRUNNER_KEY: agentKey },
    });
    expect({ code: outside.code, call: JSON.parse(outside.stdout) }).toMatchObject({ code: 0, call: { state: "succeeded" } });
  });

  it("keeps streams on three servers, synced at each write, and answers nobody without the password", async () => {
    const nats = await project.container("nats-2");
    const jsz = JSON.parse(
      await project.docker("exec", nats, "wget", "-q", "-O", "-", "http://127.0.0.1:8222/jsz?streams=1&config=1&acc=$G"),
    ) as {
      readonly config: { readonly sync_always?: boolean };
      readonly meta_cluster: { readonly cluster_size: number };
      readonly account_details: readonly {
        readonly stream_detail: readonly { readonly name: string; readonly config: { readonly num_replicas: number } }[];
      }[];
    };
    expect(jsz.config.sync_always).toBe(true);
    expect(jsz.meta_cluster.cluster_size).toBe(3);
    const replicas = Object.fromEntries(jsz.account_details[0]?.stream_detail.map(({ name, config }) => [name, config.num_replicas]) ?? []);
    expect(replicas).toMatchObject({ tr_calls: 3, KV_tr_catalog: 3 });
    expect(await project.logs("broker-1")).toMatch(/durable +.*three|durable +.*3/i);
    const front = await project.compose(["run", "--rm", "-T", "--entrypoint", "node", "cli", "-e", DIAL_NATS]);
    expect(front.stdout).toMatch(/ENOTFOUND|EAI_AGAIN/);
  });

  it("serves a product's own tools once they are provisioned and the runner has started again", async () => {
    const before = await client(0, project.adminKey).get((await client(0).call({ ...STOCK, idempotencyKey: "before" })).id);
    await putTools(project, join(ROOT, "test", "fixtures", "compose"));
    const provisioned = await project.composed(["run", "--rm", "-T", "provision"]);
    expect(provisioned).toMatch(/toolset shop saved, version 2\n(.|\n)*the runner key in \S+ is key_/);
    expect(await project.composed(["run", "--rm", "-T", "provision"])).toContain("toolset shop is there, version 2");
    await project.composed(["restart", "runner"]);
    await project.healthy(["runner"]);
    const call = await client(0).call({ toolset: "shop", tool: "charge", arguments: { order: "own", ms: 1 }, idempotencyKey: "own" });
    expect(call).toMatchObject({ state: "succeeded", result: { order: "own" } });
    expect(before.state).toBe("succeeded");
  });

  describe.sequential("one NATS server and one broker away at a time", () => {
    const combinations = (["stop", "kill"] as const).flatMap((how) =>
      NATS.flatMap((server) => (["holds the runner's session", "does not"] as const).map((which) => ({ how, server, which }))),
    );

    it.each(combinations)("docker $how of $server and of the broker that $which loses no call and runs none twice", async (each) => {
      const { how, server, which } = each;
      const withSession = await holder();
      const broker = BROKERS.find((name) => (name === withSession) === (which === "holds the runner's session")) ?? BROKERS[0];
      const [brokerContainer, serverContainer] = [await project.container(broker), await project.container(server)];
      const load = startLoad(project.urls, agentKey, `${how}-${server}-${broker}`, ["charge", "refund"]);
      await eventually("the first calls", () => load.settled() >= 6, 60_000);
      await Promise.all([project.docker(how, serverContainer), project.docker(how, brokerContainer)]);
      if (how === "stop") expect(await project.state(broker)).toMatchObject({ Status: "exited", ExitCode: 0 });
      const alone = load.settled();
      await eventually("calls while both are away", () => load.settled() >= alone + 12, 60_000);
      await project.docker("start", serverContainer, brokerContainer);
      await project.healthy([server, broker]);
      await expectOnce(`${how} ${server} and ${broker}${which === "does not" ? "" : " (with the runner)"}`, await load.stop());
      await project.healthy(STAY);
    });
  });

  it("is upgraded one container at a time without losing a call", async () => {
    const load = startLoad(project.urls, agentKey, "upgrade", ["charge", "refund"]);
    await eventually("the first calls", () => load.settled() >= 6, 60_000);
    for (const service of [...BROKERS, "runner", "nats-1"]) {
      const earlier = await project.container(service);
      await project.composed(["up", "--detach", "--no-build", "--no-deps", "--force-recreate", service]);
      expect(await project.container(service)).not.toBe(earlier);
      await project.healthy([service]);
    }
    await expectOnce("upgrade of both brokers, the runner and a NATS server", await load.stop());
  });

  it("a runner that is killed starts again with its journal, and what waited for it is run", async () => {
    const runner = await project.container("runner");
    const load = startLoad(project.urls, agentKey, "runner", ["refund"], RUNNER_BACK_MS + 30_000);
    await eventually("the first calls", () => load.settled() >= 6, 60_000);
    const begun = performance.now();
    await project.docker("kill", runner);
    await project.docker("start", runner);
    await project.healthy(["runner"], RUNNER_BACK_MS);
    note(`a killed runner takes calls again: ${seconds(begun)}`);
    const { calls } = await load.stop();
    expect(calls.filter(({ state }) => state !== "succeeded")).toEqual([]);
  }, 400_000);

  it("keeps calls, keys and tools when it is taken down and up again", async () => {
    const call = await client(0).call({ toolset: "shop", tool: "refund", arguments: { order: "kept", ms: 1 }, idempotencyKey: "kept" });
    await project.composed(["down"]);
    expect((await project.leftovers()).filter((name) => !name.startsWith("volume "))).toEqual([]);
    await project.composed(["up", "--detach", "--no-build"]);
    await project.healthy(STAY);
    expect(await client(1).get(call.id)).toMatchObject({ state: "succeeded", result: { order: "kept" } });
    const again = await client(1).call({ toolset: "shop", tool: "refund", arguments: { order: "kept", ms: 1 }, idempotencyKey: "kept" });
    expect(again.id).toBe(call.id);
  });

  it("the image is also an embedded broker, healthy by its own check, which ends in time at SIGTERM", async () => {
    const name = `${project.name}-dev`;
    const image = await project.docker("inspect", "--format", "{{.Config.Image}}", await project.container("broker-1"));
    await project.docker("run", "--detach", "--name", name, "--network", "none", image.trim(), "dev");
    try {
      const health = () => project.docker("inspect", "--format", "{{.State.Health.Status}}", name);
      await eventually("healthy", async () => (await health()).trim() === "healthy", 60_000);
      const begun = performance.now();
      await project.docker("stop", name);
      expect(performance.now() - begun).toBeLessThan(8_000);
      expect((await project.docker("inspect", "--format", "{{.State.ExitCode}}", name)).trim()).toBe("0");
      expect(await project.docker("logs", name)).toContain("draining");
    } finally {
      await project.docker("rm", "--force", "--volumes", name);
    }
  });

  it("leaves nothing after `down --volumes`", async () => {
    await project.composed(["down", "--volumes"]);
    expect(await project.leftovers()).toEqual([]);
  });
});

const STOCK = { toolset: "shop", tool: "stock", arguments: { article: "lamp" } } as const;

/** From the network of runners and agents, NATS has no name and no way. */
const DIAL_NATS = `require("node:net").connect(4222, "nats-1").on("error", (error) => console.log(error.code)).on("connect", () => console.log("connected"))`;
