/**
 * A runner that costs little: one socket, no journal, no handlers. Speaks the real protocol by the codec that brokers use.
 *
 * Invariants: each ping is answered with all grants that are held; a connection that ends is dialled again after the delay
 * that the SDK would wait, until the runner is stopped.
 */
import { createHash } from "node:crypto";
import { brokerFrameCodec, type Grant, GrantPhase, type RunnerFrame, runnerFrameCodec, SUBPROTOCOLS, Visibility } from "@toolrunner/proto";
import { WebSocket } from "ws";
import { BINDING, RUNNER_KEY } from "../product/names.js";
import { TOOL_VERSION } from "./names.js";
import type { FleetSetup } from "./roles.js";

const inbound = brokerFrameCodec("binary");
const outbound = runnerFrameCodec("binary");

/** The SDK's: 0.5 s, doubled up to 60 s, less up to half of it. */
const REDIAL_BASE_MS = 500;
const REDIAL_MAX_MS = 60_000;
const REDIAL_JITTER = 0.5;
const HANDSHAKE_MS = 30_000;

/** What a runner tells its fleet. */
export interface FleetNews {
  welcome(): void;
  /** `wasWelcome`: it counted as connected. `how`: a close code, or an error's. */
  ended(wasWelcome: boolean, how: string): void;
  held(): void;
  answered(): void;
}

export class LightRunner {
  private socket: WebSocket | undefined;
  private isWelcome = false;
  private failures = 0;
  private redial: NodeJS.Timeout | undefined;
  private stopped = false;
  private allowed = 0;
  /** Oldest first. */
  private readonly holding: Grant[] = [];

  constructor(
    private readonly number: number,
    private readonly setup: FleetSetup,
    private readonly news: FleetNews,
  ) {}

  dial(): void {
    const { url, speech } = this.setup;
    const options = {
      perMessageDeflate: false,
      handshakeTimeout: HANDSHAKE_MS,
      localAddress: localAddressOf(this.number),
      headers: { authorization: `Bearer ${RUNNER_KEY}` },
    };
    const socket = speech === "bare" ? new WebSocket(url, options) : new WebSocket(url, SUBPROTOCOLS.binary, options);
    this.socket = socket;
    let failure: string | undefined;
    socket.on("open", () => {
      if (speech === "bare") this.welcomed();
      else this.send({ $case: "hello", value: this.hello() });
    });
    socket.on("message", (data: Buffer) => this.received(data));
    socket.on("error", (error: NodeJS.ErrnoException) => {
      failure = error.code ?? error.message;
    });
    socket.on("close", (code) => this.ended(failure ?? String(code)));
  }

  /** Answers so many grants, now or when they come. */
  allow(grants: number): void {
    this.allowed += grants;
    this.answerAllowed();
  }

  stop(): void {
    this.stopped = true;
    clearTimeout(this.redial);
    this.socket?.terminate();
  }

  private received(data: Buffer): void {
    if (this.setup.speech === "bare") return;
    const decoded = inbound.decode(data);
    if (decoded.kind !== "frame") throw new Error(`a frame of the broker is ${decoded.kind}`);
    const { frame } = decoded.frame;
    switch (frame?.$case) {
      case "welcome":
        this.welcomed();
        return;
      case "ping":
        this.send({ $case: "pong", value: { number: frame.value.number, held: this.held() } });
        return;
      case "grant":
        this.granted(frame.value);
        return;
      case "revoke":
      case "cancel":
      case "protocolFault":
      case "refusal":
        // No call of a measurement is taken back: a figure with such a thing in it would be worth nothing.
        throw new Error(`the broker sent ${frame.$case}: ${JSON.stringify(frame.value)}`);
      default:
    }
  }

  private granted(grant: Grant): void {
    const { callId, grantId, fence } = grant;
    this.send({ $case: "started", value: { callId, grantId, fence, atUnixMs: Date.now() } });
    this.holding.push(grant);
    this.news.held();
    this.answerAllowed();
  }

  private answerAllowed(): void {
    while (this.allowed > 0 && this.setup.grants === "answer") {
      const grant = this.holding.shift();
      if (grant === undefined) return;
      this.allowed -= 1;
      this.answer(grant);
    }
  }

  private answer({ callId, grantId, fence, attempt, argumentsJson: resultJson }: Grant): void {
    const atUnixMs = Date.now();
    const digest = createHash("sha256").update(`{"outcome":"succeeded","result":${resultJson}}`).digest("hex");
    this.send({
      $case: "receipt",
      value: {
        callId,
        grantId,
        fence,
        attempt,
        digest,
        startedAtUnixMs: atUnixMs,
        finishedAtUnixMs: atUnixMs,
        outcome: { $case: "succeeded", value: { resultJson, chunks: undefined } },
      },
    });
    this.news.answered();
  }

  private welcomed(): void {
    this.isWelcome = true;
    this.failures = 0;
    this.news.welcome();
  }

  private ended(how: string): void {
    const wasWelcome = this.isWelcome;
    this.isWelcome = false;
    if (this.stopped) return;
    this.news.ended(wasWelcome, how);
    this.failures += 1;
    const delayMs = Math.min(REDIAL_MAX_MS, REDIAL_BASE_MS * 2 ** (this.failures - 1)) * (1 - REDIAL_JITTER * Math.random());
    this.redial = setTimeout(() => this.dial(), delayMs);
  }

  private hello(): Extract<NonNullable<RunnerFrame["frame"]>, { $case: "hello" }>["value"] {
    const { tools, slots } = this.setup;
    return {
      protocolVersions: [1],
      sdkName: "bench-fleet",
      sdkVersion: "1",
      runnerId: `fleet_${this.number}`,
      binding: BINDING,
      subject: "",
      credential: "",
      journalId: `fleet_journal_${this.number}`,
      instanceState: { visibility: Visibility.UNKNOWN, focused: false, labels: {} },
      handlers: tools.map((tool) => ({
        tool,
        version: TOOL_VERSION,
        idempotent: true,
        cancellable: true,
        readOnly: false,
        reconciles: false,
      })),
      slots,
      held: this.held(),
      renewsCredentials: false,
    };
  }

  private held(): { callId: string; grantId: string; fence: number; phase: GrantPhase }[] {
    return this.holding.map(({ callId, grantId, fence }) => ({ callId, grantId, fence, phase: GrantPhase.RUNNING }));
  }

  private send(frame: NonNullable<RunnerFrame["frame"]>): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(outbound.encode({ frame }));
  }
}

/** Loopback has more addresses than one: no single one runs out of ports, also while old connections linger. */
function localAddressOf(number: number): string {
  return `127.0.0.${2 + (number % 8)}`;
}
