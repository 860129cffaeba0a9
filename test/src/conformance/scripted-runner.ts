/** A runner whose frames a case sends by hand, over a WebSocket in either encoding. */
import {
  type BrokerFrame,
  type ChannelClose,
  type CloseCode,
  createWebSocketChannel,
  type FrameChannel,
  type FrameEncoding,
  type Grant,
  type Hello,
  type RunnerFrame,
  SUBPROTOCOLS,
  Visibility,
  type Welcome,
} from "@toolrunner/proto";
import { WebSocket } from "ws";
import { BINDING, RUNNER_TOOLS } from "./runner-stage.js";
import { ANSWER_MS } from "./subject.js";

type Kind = NonNullable<BrokerFrame["frame"]>["$case"];
type Content<K extends Kind> = Extract<NonNullable<BrokerFrame["frame"]>, { $case: K }>["value"];

/** One session that the suite holds with the broker under test. */
export class ScriptedRunner {
  readonly closed: Promise<ChannelClose>;
  private readonly frames: BrokerFrame[] = [];
  private readonly taken = new Map<Kind, number>();
  private listeners: (() => void)[] = [];
  private over = false;

  private constructor(
    private readonly socket: WebSocket,
    private readonly channel: FrameChannel<BrokerFrame, RunnerFrame>,
  ) {
    this.closed = channel.closed;
    void this.read();
  }

  static async connect(url: string, encoding: FrameEncoding, token: string | undefined): Promise<ScriptedRunner> {
    const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
    const socket = new WebSocket(url, [SUBPROTOCOLS[encoding]], { headers });
    const channel = createWebSocketChannel(socket, { side: "runner", encoding });
    await new Promise((resolve, reject) => {
      socket.once("open", resolve);
      socket.once("error", reject);
    });
    return new ScriptedRunner(socket, channel);
  }

  send(frame: NonNullable<RunnerFrame["frame"]>): void {
    this.channel.send({ frame });
  }

  sendRaw(data: Uint8Array | string): void {
    this.socket.send(data);
  }

  /** Says hello with all tools of the suite, and sends their definitions when they are asked for. */
  async greet(overrides: Partial<Hello> = {}): Promise<Welcome> {
    this.send({ $case: "hello", value: helloOf(overrides) });
    const welcome = await this.next("welcome");
    if (welcome.wantsToolDefinitions) {
      this.send({ $case: "toolDefinitions", value: { tools: RUNNER_TOOLS.map(definitionOf) } });
    }
    return welcome;
  }

  /** The next frame of a kind that was not taken yet. Pings are answered on the way, with `held`. */
  async next<K extends Kind>(kind: K, withinMs = ANSWER_MS): Promise<Content<K>> {
    const index = this.taken.get(kind) ?? 0;
    this.taken.set(kind, index + 1);
    const found = (): Content<K> | undefined => this.all(kind)[index];
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, withinMs);
      const look = (): void => {
        if (found() !== undefined || this.over) {
          clearTimeout(timer);
          resolve();
        } else this.listeners.push(look);
      };
      look();
    });
    const frame = found();
    if (frame !== undefined) return frame;
    const heard = this.frames.map(({ frame: one }) => one?.$case ?? "unknown").join(", ") || "nothing";
    throw new Error(`the broker sent no ${kind} within ${withinMs} ms${this.over ? ", and closed the session" : ""}; it sent ${heard}`);
  }

  all<K extends Kind>(kind: K): readonly Content<K>[] {
    return this.frames.flatMap(({ frame }) => (frame?.$case === kind ? [frame.value as Content<K>] : []));
  }

  succeed(grant: Grant, resultJson: string, digest = "a".repeat(64)): void {
    const { callId, grantId, fence, attempt } = grant;
    this.send({
      $case: "receipt",
      value: {
        callId,
        grantId,
        fence,
        attempt,
        digest,
        startedAtUnixMs: Date.now(),
        finishedAtUnixMs: Date.now(),
        outcome: { $case: "succeeded", value: { resultJson, chunks: undefined } },
      },
    });
  }

  close(code: CloseCode = 1000): void {
    this.channel.close(code);
  }

  /** Breaks the connection without a close. */
  cut(): void {
    this.socket.terminate();
  }

  private async read(): Promise<void> {
    for await (const frame of this.channel) {
      this.frames.push(frame);
      this.wake();
    }
    this.over = true;
    this.wake();
  }

  private wake(): void {
    const waiting = this.listeners;
    this.listeners = [];
    for (const listener of waiting) listener();
  }
}

/** A hello with everything that is needed. */
export function helloOf(overrides: Partial<Hello> = {}): Hello {
  return {
    protocolVersions: [1],
    sdkName: "conformance",
    sdkVersion: "1",
    runnerId: "conformance-runner",
    binding: BINDING,
    subject: "",
    credential: "",
    journalId: "jrn_conformance",
    instanceState: { visibility: Visibility.UNKNOWN, focused: false, labels: {} },
    handlers: RUNNER_TOOLS.map(({ name, read_only, ...rest }) => ({ tool: name, readOnly: read_only, reconciles: false, ...rest })),
    slots: 4,
    held: [],
    renewsCredentials: false,
    ...overrides,
  };
}

function definitionOf({ name, version, idempotent, cancellable, read_only }: (typeof RUNNER_TOOLS)[number]) {
  return {
    name,
    version,
    idempotent,
    cancellable,
    readOnly: read_only,
    description: "A tool of the conformance suite.",
    inputSchemaJson: "{}",
    outputSchemaJson: "",
    timeoutSeconds: 60,
    resultSemantics: "completion",
    maxResultContextBytes: 16_384,
    confirmation: "never",
    scopes: [],
    submissionTimeoutSeconds: 0,
  };
}
