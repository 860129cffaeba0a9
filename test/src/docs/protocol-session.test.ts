/** Plays the example session of docs/protocol.md against a real development broker: the document shows what really travels. */
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { brokerFrameCodec, runnerFrameCodec, SUBPROTOCOLS } from "@toolrunner/proto";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { WebSocket } from "ws";
import { type CliProcess, startCli } from "../kit/cli-process.js";
import { codeBlocksIn, readDocument } from "./markdown.js";

type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };
interface Step {
  readonly by: "runner" | "broker";
  readonly frame: Json;
}

const SESSION: readonly (readonly Step[])[] = codeBlocksIn(readDocument("docs/protocol.md"))
  .filter(({ language }) => language === "session")
  .map(({ text }) =>
    text
      .trimEnd()
      .split("\n")
      .map((line) => ({ by: line.startsWith("→ ") ? "runner" : "broker", frame: JSON.parse(line.slice(2)) })),
  );

/** Names that differ from one session to the next; the runner says them as the broker did. */
const LEARNED = new Set(["callId", "grantId", "fence", "idempotencyKey"]);
/** Values that differ and that the runner need not repeat. */
const VOLATILE = new Set(["sessionEpoch", "brokerId", "serverTimeUnixMs", "deadlineUnixMs", "remainingMs"]);

function isObject(value: Json | undefined): value is { readonly [key: string]: Json } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** `shown` with the values of `real` wherever they may differ; what is learned on the way goes into `names`. */
function withRealValues(shown: Json, real: Json | undefined, names: Map<string, Json>): Json {
  if (!isObject(shown)) return shown;
  return Object.fromEntries(
    Object.entries(shown).map(([key, value]) => {
      const found = isObject(real) ? real[key] : undefined;
      if (found !== undefined && LEARNED.has(key)) names.set(`${key} ${String(value)}`, found);
      return [key, found !== undefined && (LEARNED.has(key) || VOLATILE.has(key)) ? found : withRealValues(value, found, names)];
    }),
  );
}

function withNames(frame: Json, names: ReadonlyMap<string, Json>): Json {
  if (Array.isArray(frame)) return frame.map((item: Json) => withNames(item, names));
  if (!isObject(frame)) return frame;
  return Object.fromEntries(
    Object.entries(frame).map(([key, value]) => [key, names.get(`${key} ${String(value)}`) ?? withNames(value, names)]),
  );
}

let folder: string;
let broker: CliProcess;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "toolrunner-session-"));
  broker = await startCli(["dev", "--port", "0", "--grpc-port", "0", "--data", folder], { cwd: folder });
});
afterEach(async () => {
  await broker.stop();
  await rm(folder, { recursive: true, force: true });
});

describe("the example session of docs/protocol.md", () => {
  it("is in canonical JSON", () => {
    const steps = SESSION.flat();
    expect(steps.length).toBeGreaterThan(10);
    for (const { by, frame } of steps) {
      const text = JSON.stringify(frame);
      const again = by === "runner" ? reencoded(runnerFrameCodec("json"), text) : reencoded(brokerFrameCodec("json"), text);
      expect(again).toBe(text);
    }
  });

  function reencoded<T>(codec: { decode(text: string): { kind: string; frame?: T }; encode(frame: T): unknown }, text: string): unknown {
    const decoded = codec.decode(text);
    return decoded.frame === undefined ? decoded : codec.encode(decoded.frame);
  }

  it("is what a runner and a development broker say to each other (R10)", async () => {
    const socket = new WebSocket(String(broker.ready.ws), [SUBPROTOCOLS.json]);
    const received: Json[] = [];
    let wake: () => void = () => undefined;
    socket.on("message", (data) => {
      received.push(JSON.parse(String(data)));
      wake();
    });
    const next = async (): Promise<Json> => {
      while (received.length === 0) {
        if (socket.readyState !== WebSocket.OPEN) throw new Error("the broker closed the session");
        await new Promise<void>((resolve) => {
          wake = resolve;
          socket.once("close", () => resolve());
        });
      }
      return received.shift() ?? null;
    };
    await once(socket, "open");

    const names = new Map<string, Json>([["credential runner_dev_…", String(broker.ready.runner_token)]]);
    let answer: Promise<Response> | undefined;
    for (const [index, steps] of SESSION.entries()) {
      if (index === 1) answer = callSwitchOn();
      for (const { by, frame } of steps) {
        if (by === "runner") socket.send(JSON.stringify(withNames(frame, names)));
        else {
          const real = await next();
          expect(real).toEqual(withRealValues(frame, real, names));
        }
      }
    }
    expect(await (await answer)?.json()).toMatchObject({ state: "succeeded", result: { on: true }, attempt: 1 });
    socket.close(1000, "drained");
    const [code] = await once(socket, "close");
    expect({ code, unsaid: received }).toEqual({ code: 1000, unsaid: [] });
  }, 40_000);

  /** As the document says between the first two blocks. */
  function callSwitchOn(): Promise<Response> {
    return fetch(`${String(broker.ready.http)}/v1/calls`, {
      method: "POST",
      headers: { authorization: `Bearer ${String(broker.ready.agent_key)}`, "content-type": "application/json" },
      body: JSON.stringify({ toolset: "lamps", tool: "switch_on", arguments: { lamp: "hall" }, wait_seconds: 30 }),
    });
  }
});
