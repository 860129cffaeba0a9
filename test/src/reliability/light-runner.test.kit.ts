/**
 * A runner that costs little: one socket, no journal, no handlers. It speaks the real protocol, dials again as the SDK does, and leaves
 * a broker that drains when it holds nothing.
 */
import { createHash } from "node:crypto";
import { brokerFrameCodec, type Grant, GrantPhase, Hello, type RunnerFrame, runnerFrameCodec, SUBPROTOCOLS } from "@toolrunner/proto";
import { WebSocket } from "ws";

const inbound = brokerFrameCodec("binary");
const outbound = runnerFrameCodec("binary");
const REDIAL = { baseMs: 500, maxMs: 60_000, jitter: 0.5 };

export interface LightFleetOptions {
  readonly url: string;
  readonly token: string;
  readonly binding: string;
  readonly tools: readonly string[];
  readonly count: number;
  readonly slots: number;
  /** How long a call runs, in ms. */
  readonly runMs: (grant: Grant) => number;
}

export interface LightFleet {
  /** Runners that are welcome now. */
  readonly connected: number;
  /** When each welcome came (monotonic), and from which broker. */
  readonly welcomes: readonly { readonly atMs: number; readonly brokerId: string }[];
  /** Close codes, and errors of connections, counted. */
  readonly ends: ReadonlyMap<string, number>;
  /** How often each call was begun. */
  readonly starts: ReadonlyMap<string, number>;
  /** Frames of refusal, revoke and fault that came. */
  readonly complaints: readonly string[];
  stop(): void;
}

export function startLightFleet(options: LightFleetOptions): LightFleet {
  const welcomes: { atMs: number; brokerId: string }[] = [];
  const ends = new Map<string, number>();
  const starts = new Map<string, number>();
  const complaints: string[] = [];
  const runners = Array.from({ length: options.count }, (_, number) => {
    return lightRunner(options, number, {
      welcome: (brokerId) => void welcomes.push({ atMs: performance.now(), brokerId }),
      ended: (how) => void ends.set(how, (ends.get(how) ?? 0) + 1),
      started: (callId) => void starts.set(callId, (starts.get(callId) ?? 0) + 1),
      complaint: (what) => void complaints.push(what),
    });
  });
  return {
    get connected() {
      return runners.filter((runner) => runner.isWelcome()).length;
    },
    welcomes,
    ends,
    starts,
    complaints,
    stop: () => {
      for (const runner of runners) runner.stop();
    },
  };
}

interface News {
  welcome(brokerId: string): void;
  ended(how: string): void;
  started(callId: string): void;
  complaint(what: string): void;
}

interface Held {
  readonly grant: Grant;
  receipt: RunnerFrame["frame"] | undefined;
}

function lightRunner({ url, token, binding, tools, slots, runMs }: LightFleetOptions, number: number, news: News) {
  const held = new Map<string, Held>();
  const timers = new Set<NodeJS.Timeout>();
  let socket: WebSocket | undefined;
  let welcome = false;
  let leaving = false;
  let stopped = false;
  let failures = 0;
  let welcomedAt = 0;

  function later(delayMs: number, task: () => void): void {
    const timer = setTimeout(() => {
      timers.delete(timer);
      task();
    }, delayMs);
    timers.add(timer);
  }

  function send(frame: RunnerFrame["frame"]): void {
    if (socket?.readyState === WebSocket.OPEN) socket.send(outbound.encode({ frame }));
  }

  function report() {
    return [...held.values()].map(({ grant: { callId, grantId, fence }, receipt }) => {
      return { callId, grantId, fence, phase: receipt === undefined ? GrantPhase.RUNNING : GrantPhase.FINISHED };
    });
  }

  function dial(): void {
    leaving = false;
    const mine = new WebSocket(url, SUBPROTOCOLS.binary, { perMessageDeflate: false, headers: { authorization: `Bearer ${token}` } });
    socket = mine;
    let failure: string | undefined;
    mine.on("open", () => {
      const handlers = tools.map((tool) => ({ tool, version: "1", idempotent: false, cancellable: true, readOnly: false }));
      const names = { runnerId: `light_${number}`, journalId: `light_journal_${number}`, sdkName: "light", sdkVersion: "1" };
      send({ $case: "hello", value: Hello.create({ ...names, protocolVersions: [1], binding, slots, handlers, held: report() }) });
    });
    mine.on("message", (data: Buffer) => received(data));
    mine.on("error", (error: NodeJS.ErrnoException) => {
      failure = error.code ?? error.message;
    });
    mine.on("close", (code) => {
      welcome = false;
      if (stopped) return;
      news.ended(failure ?? String(code));
      failures = performance.now() - welcomedAt > 5_000 && welcomedAt > 0 ? 1 : failures + 1;
      const delayMs = Math.min(REDIAL.maxMs, REDIAL.baseMs * 2 ** (failures - 1)) * (1 - REDIAL.jitter * Math.random());
      later(delayMs, dial);
    });
  }

  function leaveWhenIdle(): void {
    if (leaving && held.size === 0) socket?.close(4501, "the broker drains");
  }

  function received(data: Buffer): void {
    const decoded = inbound.decode(data);
    if (decoded.kind !== "frame") throw new Error(`a frame of the broker is ${decoded.kind}`);
    const { frame } = decoded.frame;
    switch (frame?.$case) {
      case "welcome":
        welcome = true;
        welcomedAt = performance.now();
        news.welcome(frame.value.brokerId);
        for (const { receipt } of held.values()) if (receipt !== undefined) send(receipt);
        return;
      case "ping":
        return send({ $case: "pong", value: { number: frame.value.number, held: report() } });
      case "grant":
        return run(frame.value);
      case "receiptAck":
        held.delete(frame.value.grantId);
        return leaveWhenIdle();
      case "drain":
        leaving = true;
        return leaveWhenIdle();
      default:
        news.complaint(`${frame?.$case ?? "unknown"} ${JSON.stringify(frame?.value)}`);
    }
  }

  function run(grant: Grant): void {
    const { callId, grantId, fence, attempt, argumentsJson: resultJson } = grant;
    const known = held.get(grantId);
    if (known !== undefined) {
      if (known.receipt !== undefined) send(known.receipt);
      return;
    }
    const one: Held = { grant, receipt: undefined };
    held.set(grantId, one);
    news.started(callId);
    const startedAtUnixMs = Date.now();
    send({ $case: "started", value: { callId, grantId, fence, atUnixMs: startedAtUnixMs } });
    later(runMs(grant), () => {
      const digest = createHash("sha256").update(`{"outcome":"succeeded","result":${resultJson}}`).digest("hex");
      const outcome = { $case: "succeeded", value: { resultJson, chunks: undefined } } as const;
      const name = { callId, grantId, fence, attempt, digest };
      one.receipt = { $case: "receipt", value: { ...name, startedAtUnixMs, finishedAtUnixMs: Date.now(), outcome } };
      send(one.receipt);
    });
  }

  dial();
  return {
    isWelcome: () => welcome,
    stop() {
      stopped = true;
      for (const timer of timers) clearTimeout(timer);
      socket?.terminate();
    },
  };
}
