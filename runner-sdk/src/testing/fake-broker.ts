/**
 * A broker that a test plays by hand: it accepts every runner, records what it hears, and sends what it is told to.
 *
 * Invariants: frames are kept in the order of their arrival; a wait ends with a frame that came after the last one taken of
 * its kind, or fails after its time with what came instead.
 */
import {
  type BrokerFrame,
  type CloseCode,
  type Grant,
  type HeldGrant,
  type Hello,
  type Receipt,
  ReceiptDisposition,
  type RunnerFrame,
  type Welcome,
} from "@toolrunner/proto";
import type { Transport } from "../core/transport.js";
import { type BrokerChannel, memoryTransport } from "./memory-transport.js";

/** A kind of frame that a runner sends, such as "receipt". */
export type RunnerFrameKind = NonNullable<RunnerFrame["frame"]>["$case"];
/** The content of a frame of kind `K`. */
export type RunnerFrameOf<K extends RunnerFrameKind> = Extract<NonNullable<RunnerFrame["frame"]>, { $case: K }>["value"];

const WAIT_MS = 5_000;

/** A broker for tests. */
export interface FakeBroker {
  /** Give it to `createRunner`. */
  readonly transport: Transport;
  /** The next session that a runner opened; waits for it up to 5 s. */
  nextSession(): Promise<FakeSession>;
  /** Serves a channel that came another way, such as over a socket. */
  accept(channel: BrokerChannel, options?: { readonly credential?: string; readonly sever?: () => void }): void;
  /** From now on attempts fail with this error; null: they succeed again. */
  failConnects(error: Error | null): void;
}

/** One session of a runner, seen from the broker. */
export interface FakeSession {
  readonly credential: string;
  readonly channel: BrokerChannel;
  /** All frames so far. */
  readonly frames: readonly RunnerFrame[];
  readonly epoch: number;
  /** The first frame; waits for it. */
  hello(): Promise<Hello>;
  /** Waits for the hello and welcomes the runner: epoch as given, no pings of its own, lease 15 s. */
  welcome(overrides?: Partial<Welcome>): Promise<Hello>;
  send(frame: NonNullable<BrokerFrame["frame"]>): void;
  /** Sends a grant; what is not given has a default. Answers with the whole grant. */
  grant(grant: Partial<Grant> & { readonly tool: string }): Grant;
  /** Asks the tool's reconcile handler what became of an earlier grant. Answers with the grant that names its answer. */
  reconcile(
    started: { readonly callId: string; readonly grantId: string; readonly fence?: number },
    grant: Partial<Grant> & { readonly tool: string },
  ): Grant;
  /** Sends a grant, waits for its receipt and acknowledges it: a call from end to end. */
  call(grant: Partial<Grant> & { readonly tool: string }, timeoutMs?: number): Promise<Receipt>;
  /** The next frame of a kind that was not taken yet, up to 5 s. */
  next<K extends RunnerFrameKind>(kind: K, timeoutMs?: number): Promise<RunnerFrameOf<K>>;
  /** Frames of a kind so far. */
  all<K extends RunnerFrameKind>(kind: K): readonly RunnerFrameOf<K>[];
  acknowledge(receipt: Pick<Receipt, "callId" | "grantId">, disposition?: ReceiptDisposition): void;
  /** Sends a ping and waits for its pong. */
  ping(number: number, acknowledged?: number): Promise<readonly HeldGrant[]>;
  /** Sends a ping and waits until its pong came: everything sent before was taken in. */
  settleFrames(): Promise<void>;
  /** Resolves when the channel closed and its last frame was taken in. */
  readonly ended: Promise<void>;
  close(code: CloseCode, reason?: string): void;
  /** Breaks the connection without a close; only over memory pairs. */
  sever(): void;
}

/** Makes a fake broker. */
export function createFakeBroker(): FakeBroker {
  const waiting: FakeSession[] = [];
  const takers: ((session: FakeSession) => void)[] = [];
  let epoch = 0;
  let connectError: Error | null = null;
  const accept: FakeBroker["accept"] = (channel, { credential = "", sever = () => channel.close(4500) } = {}) => {
    epoch++;
    const session = createFakeSession(channel, credential, epoch, sever);
    const taker = takers.shift();
    if (taker === undefined) waiting.push(session);
    else taker(session);
  };
  return {
    transport: memoryTransport((channel, options) => {
      if (connectError !== null) throw connectError;
      accept(channel, options);
    }),
    accept,
    failConnects: (error) => {
      connectError = error;
    },
    nextSession() {
      const session = waiting.shift();
      if (session !== undefined) return Promise.resolve(session);
      let taker: ((session: FakeSession) => void) | undefined;
      const came = within<FakeSession>(
        WAIT_MS,
        () => "no session was opened",
        (resolve) => {
          taker = resolve;
          takers.push(resolve);
        },
      );
      return came.catch((error: unknown) => {
        // Who gave up must not get the session that comes later.
        takers.splice(0, takers.length, ...takers.filter((one) => one !== taker));
        throw error;
      });
    },
  };
}

function createFakeSession(channel: BrokerChannel, credential: string, epoch: number, sever: () => void): FakeSession {
  const frames: RunnerFrame[] = [];
  const taken = new Map<RunnerFrameKind, number>();
  let arrived: (() => void)[] = [];
  let calls = 0;
  let pings = 1_000_000;
  const ended = (async () => {
    for await (const frame of channel) {
      frames.push(frame);
      const waiters = arrived;
      arrived = [];
      for (const wake of waiters) wake();
    }
  })();

  const all = <K extends RunnerFrameKind>(kind: K): RunnerFrameOf<K>[] =>
    frames.flatMap(({ frame }) => (frame?.$case === kind ? [frame.value as RunnerFrameOf<K>] : []));

  async function next<K extends RunnerFrameKind>(kind: K, timeoutMs = WAIT_MS): Promise<RunnerFrameOf<K>> {
    const index = taken.get(kind) ?? 0;
    taken.set(kind, index + 1);
    const heard = () =>
      `no ${kind} came within ${timeoutMs} ms; heard: ${frames.map(({ frame }) => frame?.$case ?? "unknown").join(", ") || "nothing"}`;
    return within(timeoutMs, heard, (resolve) => {
      const look = () => {
        const found = all(kind)[index];
        if (found === undefined) arrived.push(look);
        else resolve(found);
      };
      look();
    });
  }

  function grantOf(given: Partial<Grant> & { readonly tool: string }): Grant {
    calls++;
    const callId = given.callId ?? `call_${epoch}_${calls}`;
    return {
      callId,
      grantId: `${callId}_grant`,
      attempt: 1,
      fence: 1_000 * epoch + calls,
      sessionEpoch: epoch,
      version: "1",
      argumentsJson: "{}",
      subject: "",
      agent: "tester",
      idempotencyKey: `key_${callId}`,
      deadlineUnixMs: Date.now() + 300_000,
      remainingMs: 300_000,
      leaseMs: 15_000,
      pongNumber: 0,
      traceparent: "",
      token: "",
      scopes: [],
      toolset: "test",
      toolsetVersion: 1,
      session: "",
      maxResultBytes: 0,
      ...given,
    };
  }

  const session: FakeSession = {
    credential,
    channel,
    frames,
    epoch,
    ended,
    all,
    next,
    hello: () => {
      taken.delete("hello");
      return next("hello");
    },
    async welcome(overrides = {}) {
      const hello = await session.hello();
      const limits = {
        frameBytes: 1_048_576,
        resultBytes: 983_040,
        progressBytes: 16_384,
        slots: 1_024,
        chunkedResultBytes: 0,
        chunkBytes: 0,
      };
      session.send({
        $case: "welcome",
        value: {
          protocolVersion: 1,
          sessionEpoch: epoch,
          brokerId: "fake",
          pingIntervalMs: 0,
          leaseMs: 15_000,
          serverTimeUnixMs: Date.now(),
          limits,
          wantsToolDefinitions: false,
          takesCallUpdates: true,
          renewsCredentials: true,
          ...overrides,
        },
      });
      return hello;
    },
    send: (frame) => channel.send({ frame }),
    grant(given) {
      const grant = grantOf(given);
      session.send({ $case: "grant", value: grant });
      return grant;
    },
    reconcile({ callId, grantId, fence = 1 }, given) {
      const grant = grantOf({ callId, grantId: `${grantId}_asked_${calls + 1}`, ...given });
      session.send({ $case: "reconcile", value: { grant, startedGrantId: grantId, startedFence: fence } });
      return grant;
    },
    async call(given, timeoutMs = WAIT_MS) {
      const { grantId } = session.grant(given);
      const heard = () => `no receipt of ${given.tool} came within ${timeoutMs} ms`;
      const receipt = await within<Receipt>(timeoutMs, heard, (resolve) => {
        const look = () => {
          const found = all("receipt").find((one) => one.grantId === grantId);
          if (found === undefined) arrived.push(look);
          else resolve(found);
        };
        look();
      });
      session.acknowledge(receipt);
      return receipt;
    },
    acknowledge: ({ callId, grantId }, disposition = ReceiptDisposition.SETTLED) =>
      session.send({ $case: "receiptAck", value: { callId, grantId, disposition } }),
    async ping(number, acknowledged = 0) {
      session.send({ $case: "ping", value: { number, acknowledged } });
      for (;;) {
        const pong = await next("pong");
        if (pong.number === number) return pong.held;
      }
    },
    async settleFrames() {
      await session.ping(pings++);
    },
    close: (code, reason) => channel.close(code, reason),
    sever,
  };
  return session;
}

function within<T>(timeoutMs: number, message: () => string, begin: (resolve: (value: T) => void) => void): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(message())), timeoutMs);
    begin((value) => {
      clearTimeout(timer);
      resolve(value);
    });
  });
}
