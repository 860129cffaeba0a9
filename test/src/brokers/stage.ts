/** A folder with a gate, a record of starts, and what is needed to start brokers and runners in it. */
import { existsSync, readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type CliProcess, startCli } from "../kit/cli-process.js";

export const ADMIN_KEY = "test-admin-key-0123456789abcdefgh";
const TOOLS = fileURLToPath(new URL("../../fixtures/work.mjs", import.meta.url));

export interface Start {
  readonly call: string;
  readonly attempt: number;
  readonly fence: number;
  readonly pid: number;
}

export interface Answer {
  readonly status: number;
  readonly body: Record<string, unknown>;
}

export interface Stage {
  readonly folder: string;
  /** Lets all handlers end. */
  openGate(): Promise<void>;
  starts(): Start[];
  /** An embedded broker on a free port, or on `port`; the data folder is the stage's, whichever process has it. */
  dev(port?: number): Promise<CliProcess>;
  broker(natsUrl: string): Promise<CliProcess>;
  runner(options: {
    readonly url: string;
    readonly token: string;
    readonly journal: string;
    readonly runnerId?: string;
    readonly version?: string;
  }): Promise<CliProcess>;
  /** Whether a journal file holds this text. */
  journalSays(journal: string, text: string): boolean;
  /** An HTTP call to a broker as its administrator, or with `key`. */
  http(broker: CliProcess, method: string, path: string, body?: unknown): Promise<Answer>;
  /** What a product team does once: the binding, the toolset, a runner key. Answers the key. */
  setUp(broker: CliProcess): Promise<string>;
  close(): Promise<void>;
}

export async function createStage(): Promise<Stage> {
  const folder = await mkdtemp(join(tmpdir(), "toolrunner-stage-"));
  const processes: CliProcess[] = [];
  const gate = join(folder, "gate");
  const startsFile = join(folder, "starts");
  async function started(args: readonly string[], env: Record<string, string> = {}): Promise<CliProcess> {
    const child = await startCli(args, { cwd: folder, env: { GATE_FILE: gate, STARTS_FILE: startsFile, ...env } });
    processes.push(child);
    return child;
  }
  async function http(broker: CliProcess, method: string, path: string, body?: unknown): Promise<Answer> {
    const key = typeof broker.ready.agent_key === "string" ? broker.ready.agent_key : ADMIN_KEY;
    const response = await fetch(`${String(broker.ready.http)}${path}`, {
      method,
      headers: { authorization: `Bearer ${key}`, ...(body === undefined ? {} : { "content-type": "application/json" }) },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    return { status: response.status, body: (await response.json()) as Record<string, unknown> };
  }
  async function made(broker: CliProcess, method: string, path: string, body: unknown): Promise<Record<string, unknown>> {
    const answer = await http(broker, method, path, body);
    if (answer.status !== 201) {
      throw new Error(`${method} ${path}: ${JSON.stringify(answer)}`);
    }
    return answer.body;
  }
  return {
    folder,
    http,
    async setUp(broker) {
      await made(broker, "PUT", "/v1/bindings/work", { name: "Work", kind: "backend" });
      const tools = ["charge", "lookup"].map((name) => ({
        name,
        description: "Waits.",
        input_schema: { type: "object" },
        binding: "work",
        idempotent: name === "lookup",
        cancellable: true,
      }));
      await made(broker, "PUT", "/v1/toolsets/work", { base_version: 0, tools });
      return String((await made(broker, "POST", "/v1/bindings/work/keys", {})).key);
    },
    openGate: () => writeFile(gate, ""),
    starts: () =>
      existsSync(startsFile)
        ? readFileSync(startsFile, "utf8")
            .split("\n")
            .filter((line) => line !== "")
            .map((line) => JSON.parse(line) as Start)
        : [],
    dev: (port = 0) => started(["dev", "--port", String(port), "--grpc-port", "0", "--data", join(folder, "data"), "--log-level", "info"]),
    broker: (natsUrl) => started(["broker", "--nats", natsUrl, "--port", "0", "--grpc-port", "0"], { TOOLRUNNER_BOOTSTRAP_KEY: ADMIN_KEY }),
    journalSays: (journal, text) => existsSync(join(folder, journal)) && readFileSync(join(folder, journal), "utf8").includes(text),
    runner: ({ url, token, journal, runnerId, version }) =>
      started(
        [
          "run",
          TOOLS,
          "--url",
          url,
          "--binding",
          "work",
          "--token",
          token,
          "--journal",
          join(folder, journal),
          ...(runnerId === undefined ? [] : ["--runner-id", runnerId]),
        ],
        version === undefined ? {} : { HANDLER_VERSION: version },
      ),
    async close() {
      await Promise.all(processes.map((child) => child.kill9()));
      await rm(folder, { recursive: true, force: true });
    },
  };
}
