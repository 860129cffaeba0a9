import { randomBytes } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  brokerFrameCodec,
  type CloseCode,
  FRAME_BYTES_MAX,
  Hello,
  type RunnerFrame,
  runnerFrameCodec,
  SUBPROTOCOLS,
} from "@toolrunner/proto";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import WebSocket from "ws";
import { type CliProcess, freePort, runCli, startCli } from "../kit/index.js";

let folder: string;
let dev: CliProcess;
let runner: CliProcess;

const TOOLS = `
import { defineTool } from "@toolrunner/runner-sdk";
export default [defineTool({ name: "greet", description: "Greets.", input: { type: "object", properties: { name: { type: "string" } }, required: ["name"], additionalProperties: false }, run: async ({ name }) => "hello " + name })];
`;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "toolrunner-wrong-"));
  dev = await startCli(["dev", "--port", "0", "--grpc-port", "0"], { cwd: folder });
  await writeFile(join(folder, "shop.mjs"), TOOLS);
  runner = await startCli(["run", join(folder, "shop.mjs"), "--runner-id", "good"], { cwd: folder });
}, 60_000);

afterAll(async () => {
  await runner.stop();
  await dev.stop();
  await rm(folder, { recursive: true, force: true });
}, 60_000);

interface Refusal {
  readonly status: number;
  readonly body: { readonly error?: { readonly code?: string; readonly message?: string; readonly details?: { readonly path: string }[] } };
}

async function post(path: string, text: string, headers: Record<string, string> = {}): Promise<Refusal> {
  const response = await fetch(`${String(dev.ready.http)}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${String(dev.ready.agent_key)}`, ...headers },
    body: text,
  });
  return { status: response.status, body: (await response.json()) as Refusal["body"] };
}

/** The good runner still serves: nobody else was harmed. */
async function stillServes(): Promise<void> {
  const call = await post("/v1/calls", JSON.stringify({ toolset: "shop", tool: "greet", arguments: { name: "Ana" }, wait_seconds: 10 }));
  expect(call).toMatchObject({ status: 200, body: { state: "succeeded", result: "hello Ana" } });
}

interface Session {
  send(data: Uint8Array | string): void;
  frame(frame: RunnerFrame["frame"]): void;
  readonly kinds: string[];
  readonly faults: string[];
  readonly closed: Promise<number>;
  until(kind: string): Promise<void>;
}

async function session(): Promise<Session> {
  const socket = new WebSocket(String(dev.ready.ws), [SUBPROTOCOLS.binary]);
  socket.binaryType = "arraybuffer";
  const incoming = brokerFrameCodec("binary");
  const outgoing = runnerFrameCodec("binary");
  const kinds: string[] = [];
  const faults: string[] = [];
  let look: () => void = () => undefined;
  socket.on("message", (data: ArrayBuffer) => {
    const decoded = incoming.decode(new Uint8Array(data));
    if (decoded.kind !== "frame") {
      throw new Error(`the broker sent a frame that is ${decoded.kind}`);
    }
    const { frame } = decoded.frame;
    kinds.push(frame?.$case ?? "unknown");
    if (frame?.$case === "refusal" || frame?.$case === "protocolFault") {
      faults.push(frame.value.code);
    }
    look();
  });
  const closed = new Promise<number>((resolve) => socket.on("close", (code) => resolve(code)));
  await new Promise<void>((resolve, reject) => {
    socket.once("open", () => resolve());
    socket.once("error", reject);
  });
  return {
    send: (data) => socket.send(data),
    frame: (frame) => socket.send(outgoing.encode({ frame })),
    kinds,
    faults,
    closed,
    until: (kind) =>
      new Promise((resolve) => {
        look = () => (kinds.includes(kind) ? resolve() : undefined);
        look();
      }),
  };
}

function hello(more: Partial<Hello> = {}): RunnerFrame["frame"] {
  return {
    $case: "hello",
    value: Hello.create({
      protocolVersions: [1],
      sdkName: "raw",
      runnerId: "raw",
      binding: "raw",
      credential: String(dev.ready.runner_token),
      journalId: "raw",
      slots: 1,
      ...more,
    }),
  };
}

describe("over HTTP", () => {
  it.each([
    ["an unknown toolset", { toolset: "nothing", tool: "greet", arguments: {} }, 404, "toolset_unknown"],
    ["an unknown tool", { toolset: "shop", tool: "nothing", arguments: {} }, 404, "tool_unknown"],
    ["an unknown toolset version", { toolset: "shop", tool: "greet", toolset_version: 99, arguments: {} }, 404, "toolset_version_unknown"],
    ["an unknown field", { toolset: "shop", tool: "greet", arguments: { name: "A" }, colour: "red" }, 400, "field_unknown"],
    ["a missing field", { toolset: "shop", arguments: {} }, 400, "body_invalid"],
    ["a field of the wrong type", { toolset: "shop", tool: 7, arguments: {} }, 400, "body_invalid"],
    [
      "a time-out above the tool's",
      { toolset: "shop", tool: "greet", arguments: { name: "A" }, timeout_seconds: 86_400 },
      400,
      "body_invalid",
    ],
    ["arguments that break the schema", { toolset: "shop", tool: "greet", arguments: { nam: 1 } }, 400, "arguments_invalid"],
    ["a release", { toolset: "shop", tool: "greet", arguments: { name: "A" }, release: 1 }, 400, "release_unsupported"],
  ])("%s is refused by type", async (_what, body, status, code) => {
    const refused = await post("/v1/calls", JSON.stringify(body));
    expect(refused.status, JSON.stringify(refused.body)).toBe(status);
    expect(refused.body).toMatchObject({ type: "error", error: { code } });
    expect(refused.body.error?.message?.length).toBeGreaterThan(10);
    await stillServes();
  });

  it("all faults of arguments are listed with their paths", async () => {
    const refused = await post("/v1/calls", JSON.stringify({ toolset: "shop", tool: "greet", arguments: { nam: 1, other: 2 } }));
    expect(refused.body.error?.details?.map(({ path }) => path).sort()).toEqual(["/nam", "/name", "/other"]);
  });

  it.each([
    ["no JSON", "{not json", {}],
    ["an empty body", "", {}],
    ["a body of another type", "<x/>", { "content-type": "text/xml" }],
    ["JSON that is no object", "[1,2]", {}],
    ["broken UTF-8", "\ud800", {}],
  ])("%s is refused as body_invalid", async (_what, text, headers) => {
    const refused = await post("/v1/calls", text, headers as Record<string, string>);
    expect(refused).toMatchObject({ status: 400, body: { error: { code: "body_invalid" } } });
  });

  it("a body over the limit is refused as body_too_large", async () => {
    const refused = await post("/v1/calls", JSON.stringify({ toolset: "shop", tool: "greet", arguments: { name: "x".repeat(9_000_000) } }));
    expect(refused).toMatchObject({ status: 413, body: { error: { code: "body_too_large" } } });
    await stillServes();
  });

  it.each([
    ["no key", undefined, "key_missing"],
    ["a wrong key", "Bearer wrong", "key_invalid"],
    ["a runner's key", "runner", "key_invalid"],
    ["another scheme", "Basic abc", "key_invalid"],
  ])("%s is refused, loopback or not", async (_what, authorization, code) => {
    for (const path of ["/v1/calls", "/v1/toolsets", "/v1/bindings", "/v1/runners", "/v1/keys", "/openapi.json", "/nowhere"]) {
      const value = authorization === "runner" ? `Bearer ${String(dev.ready.runner_token)}` : authorization;
      const response = await fetch(`${String(dev.ready.http)}${path}`, value === undefined ? {} : { headers: { authorization: value } });
      expect(response.status, path).toBe(401);
      expect(await response.json(), path).toMatchObject({ type: "error", error: { type: "authentication_error", code } });
    }
    expect((await fetch(`${String(dev.ready.http)}/healthz`)).status).toBe(200);
    expect((await fetch(`${String(dev.ready.http)}/readyz`)).status).toBe(200);
  });

  it("an unknown address and an unknown call are 404", async () => {
    expect(await post("/v1/nowhere", "{}")).toMatchObject({ status: 404, body: { error: { code: "route_unknown" } } });
    const response = await fetch(`${String(dev.ready.http)}/v1/calls/call_aaaaaaaaaaaaaaaaaaaaaaaaaa`, {
      headers: { authorization: `Bearer ${String(dev.ready.agent_key)}` },
    });
    expect(response.status).toBe(404);
  });
});

describe("over a runner session", () => {
  it("a handler version that nobody has leaves the call waiting and says so", async () => {
    const url = String(dev.ready.http);
    const headers = { "content-type": "application/json", authorization: `Bearer ${String(dev.ready.agent_key)}` };
    const saved = await fetch(`${url}/v1/toolsets/future`, {
      method: "PUT",
      headers,
      body: JSON.stringify({
        base_version: 0,
        tools: [{ name: "greet", version: "99", description: "Not there.", input_schema: { type: "object" }, binding: "shop" }],
      }),
    });
    expect(saved.status).toBe(201);
    const call = await post("/v1/calls", JSON.stringify({ toolset: "future", tool: "greet", arguments: {} }));
    expect(call).toMatchObject({ status: 202, body: { state: "queued", waiting_for: "handler" } });
  });

  it.each<[string, Partial<Hello>, CloseCode, string]>([
    ["an old protocol version", { protocolVersions: [0] }, 4426, "protocol_version_unsupported"],
    ["a wrong credential", { credential: "wrong" }, 4401, "credential_invalid"],
    ["no credential", { credential: "" }, 4401, "credential_invalid"],
    ["a binding that is no id", { binding: "No Id" }, 4400, "hello_invalid"],
    [
      "a handler that is declared twice",
      {
        handlers: [1, 2].map(() => ({
          tool: "t",
          version: "1",
          idempotent: false,
          cancellable: false,
          readOnly: false,
          reconciles: false,
        })),
      },
      4400,
      "hello_invalid",
    ],
  ])("%s in the hello is refused by type", async (_what, more, close, code) => {
    const raw = await session();
    raw.frame(hello(more));
    expect(await raw.closed).toBe(close);
    expect(raw.faults).toEqual([code]);
    await stillServes();
  });

  it("a first frame that is no hello is refused, and so is a second hello", async () => {
    const early = await session();
    early.frame({ $case: "claim", value: { slots: 1 } });
    expect(await early.closed).toBe(4400);
    expect(early.faults).toEqual(["hello_expected"]);
    const twice = await session();
    twice.frame(hello());
    await twice.until("welcome");
    twice.frame(hello());
    expect(await twice.closed).toBe(4400);
  });

  it("silence instead of a hello is closed with 4408 after 5 s", async () => {
    const silent = await session();
    expect(await silent.closed).toBe(4408);
  }, 15_000);

  it("an unknown kind of frame is answered by type, and the session goes on", async () => {
    const raw = await session();
    raw.frame(hello({ runnerId: "unknown_kind" }));
    await raw.until("welcome");
    // Field 99, length-delimited, empty: a kind that this release does not have.
    raw.send(Uint8Array.of(0x9a, 0x06, 0x00));
    await raw.until("protocolFault");
    expect(raw.faults).toEqual(["frame_unknown"]);
    raw.frame({ $case: "claim", value: { slots: 2 } });
    await stillServes();
    raw.frame(hello());
    expect(await raw.closed).toBe(4400);
  });

  it.each([
    ["random bytes", () => Uint8Array.of(0xff, 0xff, ...randomBytes(64))],
    ["a truncated frame", () => runnerFrameCodec("binary").encode({ frame: hello() }).slice(0, 20)],
    ["text on the binary subprotocol", () => "hello"],
  ])("%s closes that session with 4400", async (_what, bytes) => {
    const raw = await session();
    raw.send(bytes());
    expect(await raw.closed).toBe(4400);
    await stillServes();
  });

  it("a frame over the limit closes that session with 4413", async () => {
    const raw = await session();
    raw.frame(hello({ runnerId: "large" }));
    await raw.until("welcome");
    raw.send(new Uint8Array(FRAME_BYTES_MAX + 1));
    expect(await raw.closed).toBe(4413);
    await stillServes();
  });

  it("frames about calls and grants that are not the runner's change nothing", async () => {
    const call = await post("/v1/calls", JSON.stringify({ toolset: "shop", tool: "greet", arguments: { name: "Ben" }, wait_seconds: 10 }));
    const { id } = call.body as unknown as { id: string };
    const raw = await session();
    raw.frame(hello({ runnerId: "liar" }));
    await raw.until("welcome");
    for (const callId of [id, "call_aaaaaaaaaaaaaaaaaaaaaaaaaa", "../../etc", ""]) {
      raw.frame({ $case: "started", value: { callId, grantId: "entry_x", fence: 1, atUnixMs: 1 } });
      raw.frame({ $case: "decline", value: { callId, grantId: "entry_x", fence: 1, reason: 2, message: "no" } });
      raw.frame({ $case: "cancelAnswer", value: { callId, grantId: "entry_x", level: 3 } });
      raw.frame({
        $case: "receipt",
        value: {
          callId,
          grantId: "entry_x",
          fence: 1,
          attempt: 1,
          digest: "0".repeat(64),
          startedAtUnixMs: 1,
          finishedAtUnixMs: 1,
          outcome: { $case: "succeeded", value: { resultJson: '"forged"', chunks: undefined } },
        },
      });
    }
    await raw.until("receiptAck");
    const now = await fetch(`${String(dev.ready.http)}/v1/calls/${id}`, {
      headers: { authorization: `Bearer ${String(dev.ready.agent_key)}` },
    });
    expect(await now.json()).toMatchObject({ state: "succeeded", result: "hello Ben" });
    await stillServes();
  });

  it("a second runner with the same id takes over, and the first process ends with exit code 1", async () => {
    const first = await startCli(
      ["run", join(folder, "shop.mjs"), "--binding", "twins", "--runner-id", "twin", "--journal", join(folder, "twin-1")],
      { cwd: folder },
    );
    const second = await startCli(
      ["run", join(folder, "shop.mjs"), "--binding", "twins", "--runner-id", "twin", "--journal", join(folder, "twin-2")],
      { cwd: folder },
    );
    expect(await first.exited).toBe(1);
    expect(JSON.parse(first.stderr().trim().split("\n").at(-1) ?? "")).toMatchObject({ type: "error" });
    await stillServes();
    expect(await second.stop()).toBe(0);
  }, 60_000);

  it("a runner's upgrade with a wrong key is 401", async () => {
    const socket = new WebSocket(String(dev.ready.ws), [SUBPROTOCOLS.binary], { headers: { authorization: "Bearer wrong" } });
    const status = await new Promise((resolve) => {
      socket.on("unexpected-response", (_request, response) => resolve(response.statusCode));
      socket.on("error", () => undefined);
    });
    expect(status).toBe(401);
  });
});

describe("at start", () => {
  it("a data folder in use is a start-up fault in one line", async () => {
    const other = await runCli(["dev", "--port", "0", "--grpc-port", "0", "--json"], { cwd: folder });
    expect(other.code).toBe(1);
    expect(other.stdout).toBe("");
    expect(JSON.parse(other.stderr)).toMatchObject({ type: "error", error: { code: "data_in_use" } });
  }, 30_000);

  it("a port in use is a start-up fault that names it", async () => {
    const port = new URL(String(dev.ready.http)).port;
    const other = await runCli(["dev", "--port", port, "--grpc-port", "0", "--data", join(folder, "other"), "--json"], { cwd: folder });
    expect(other.code).toBe(1);
    expect(JSON.parse(other.stderr)).toMatchObject({ error: { code: "port_in_use" } });
    expect(other.stderr).toContain(port);
    const grpc = await runCli(
      ["dev", "--port", "0", "--grpc-port", new URL(String(dev.ready.grpc)).port, "--data", join(folder, "other"), "--json"],
      { cwd: folder },
    );
    expect(grpc.code).toBe(1);
    expect(JSON.parse(grpc.stderr)).toMatchObject({ error: { code: "port_in_use" } });
  }, 60_000);

  it("a nats-server that is down is a start-up fault that says what to do", async () => {
    const url = `nats://127.0.0.1:${await freePort()}`;
    const broker = await runCli(["broker", "--nats", url, "--port", "0", "--grpc-port", "0", "--json"], {
      cwd: folder,
      env: { TOOLRUNNER_BOOTSTRAP_KEY: "test-admin-key-0123456789abcdefgh" },
    });
    expect(broker.code).toBe(1);
    expect(JSON.parse(broker.stderr.trim().split("\n").at(-1) ?? "")).toMatchObject({ error: { code: "nats_unreachable" } });
    expect(broker.stderr).toContain(url);
  }, 60_000);

  it("a file that exports no tools, and one that cannot be read, end a runner at once", async () => {
    await writeFile(join(folder, "empty.mjs"), "export default 7;");
    for (const file of ["empty.mjs", "absent.mjs"]) {
      const outcome = await runCli(["run", join(folder, file), "--json"], { cwd: folder });
      expect([1, 2]).toContain(outcome.code);
      expect(JSON.parse(outcome.stderr.trim().split("\n").at(-1) ?? "")).toMatchObject({ type: "error" });
    }
  }, 60_000);

  it("a client of a broker that is not there ends with exit code 4", async () => {
    const outcome = await runCli(["call", "greet", "--toolset", "shop", "--args", "{}", "--json"], {
      cwd: folder,
      env: { TOOLRUNNER_URL: `http://127.0.0.1:${await freePort()}`, TOOLRUNNER_KEY: "k" },
    });
    expect(outcome.code).toBe(4);
    const wrong = await runCli(["call"], { cwd: folder });
    expect(wrong.code).toBe(2);
  }, 120_000);
});
