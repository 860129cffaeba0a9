/**
 * One session over one channel: hello, welcome, frames, end. It never throws; how it ended is its result.
 *
 * Invariants:
 * - S1 The hello is composed after the desk has dropped what older sessions left unstarted (G2), and is the first frame.
 * - S2 Frames before the welcome, a second welcome, and frames of an unknown kind are answered by a typed fault; the session goes on.
 * - S3 Silence of the broker is judged after the sockets were read once more: a loop that stood still is not taken for a dead peer.
 */
import { type ChannelClose, type CloseCode, FrameTooLargeError } from "@toolrunner/proto";
import { type Clock, elapsedMs, type Instant, instant } from "./clock.js";
import type { CredentialKeeper } from "./credential-keeper.js";
import { messageOf } from "./errors.js";
import type { GrantDesk } from "./grant-desk.js";
import type { HandlerTable } from "./handlers.js";
import { AnswerTimes } from "./lease.js";
import type { EventLog } from "./log.js";
import type { BrokerMessage, GrantMessage, InstanceFacts, Welcome } from "./messages.js";
import type { SessionLink } from "./session-link.js";
import {
  claimFrame,
  credentialFrame,
  drainFrame,
  helloFrame,
  instanceStateFrame,
  NO_LIMITS,
  type OutboundFrame,
  PROTOCOL_VERSIONS,
  protocolFaultFrame,
  type RunnerChannel,
  readFrame,
  toolDefinitionsFrame,
} from "./wire.js";

/** Unsent bytes over which progress is dropped. */
const CONGESTED_BYTES = 1_048_576;
const WELCOME_TIMEOUT_MS = 10_000;
/** Ping intervals without a frame after which the broker counts as gone. */
const SILENT_INTERVALS = 3;
const PROBE_MS = 1_000;
/** How long the broker may take to close after its refusal. */
const REFUSAL_CLOSE_MS = 2_000;

/** What a refusal said. */
export interface SessionRefusal {
  readonly code: string;
  readonly message: string;
  readonly retryAfterMs: number;
}

/** How a session ended. */
export interface SessionEnd {
  readonly close: ChannelClose;
  /** How long it was up after its welcome; null when it was never welcomed. */
  readonly upMs: number | null;
  readonly refusal: SessionRefusal | null;
}

export interface SessionOptions {
  readonly channel: RunnerChannel;
  readonly clock: Clock;
  readonly log: EventLog;
  readonly desk: GrantDesk;
  readonly handlers: HandlerTable;
  readonly hello: {
    readonly sdkVersion: string;
    readonly runnerId: string;
    readonly binding: string;
    readonly subject: string;
    readonly credential: string;
    readonly journalId: string;
    readonly instance: () => InstanceFacts;
  };
  /** The credential that the session is made with. */
  readonly credential: string;
  readonly credentials: CredentialKeeper;
  readonly onWelcome: (welcome: Welcome) => void;
  /** The broker drains: it wants its runners to go elsewhere. */
  readonly onBrokerDrain: (deadlineMs: number) => void;
}

/** A session that runs. */
export interface Session {
  readonly ended: Promise<SessionEnd>;
  /** Changes the standing claim. */
  claim(slots: number): void;
  /** Tells the broker what the runner is like now, when that is not what it was last told. */
  tellInstance(): void;
  /** Tells the broker that nothing new is taken. */
  announceDrain(reason: string, deadlineMs: number): void;
  /** Looks whether the broker is still there: it may have been gone for long, whatever the socket says. */
  probe(): void;
  close(code: CloseCode, reason?: string): void;
}

/** What only a welcomed session takes. */
type SessionMessage = GrantMessage | Extract<BrokerMessage, { kind: "ping" | "drain" | "credential_request" | "credential_accepted" }>;

/** Starts a session over a fresh channel. */
export function startSession(options: SessionOptions): Session {
  const session = new RunningSession(options);
  return {
    ended: session.run(),
    tellInstance: () => session.tellInstance(),
    claim: (slots) => void session.send(claimFrame(slots)),
    announceDrain: (reason, deadlineMs) => void session.send(drainFrame(reason, deadlineMs)),
    probe: () => session.probe(),
    close: (code, reason) => options.channel.close(code, reason),
  };
}

class RunningSession implements SessionLink {
  open = true;
  #welcome: Welcome | null = null;
  #welcomedAt: Instant | null = null;
  #refusal: SessionRefusal | null = null;
  #heardAt: Instant;
  /** 0: the broker does not ping. */
  #pingIntervalMs = 0;
  #timer: { cancel(): void } | null = null;
  readonly #answers = new AnswerTimes();
  #told: InstanceFacts | null = null;

  constructor(private readonly options: SessionOptions) {
    this.#heardAt = instant(options.clock);
    void options.channel.closed.then(() => {
      this.open = false;
    });
  }

  get epoch(): number {
    return this.#welcome?.sessionEpoch ?? 0;
  }

  get limits() {
    return this.#welcome?.limits ?? NO_LIMITS;
  }

  get leaseMs(): number {
    return this.#welcome?.leaseMs ?? 0;
  }

  get takesCallUpdates(): boolean {
    return this.#welcome?.takesCallUpdates ?? false;
  }

  get congested(): boolean {
    return this.options.channel.bufferedBytes > CONGESTED_BYTES;
  }

  drained(): Promise<void> {
    return this.options.channel.drained();
  }

  answerSentAt(number: number): Instant | null {
    return this.#answers.of(number);
  }

  send(frame: OutboundFrame): "sent" | "closed" | "too_large" {
    if (!this.open) return "closed";
    try {
      this.options.channel.send(frame);
      return "sent";
    } catch (error) {
      const tooLarge = error instanceof FrameTooLargeError;
      this.options.log.error("frame_not_sent", { kind: frame.frame?.$case ?? "none", message: messageOf(error) });
      return tooLarge ? "too_large" : "closed";
    }
  }

  async run(): Promise<SessionEnd> {
    const { channel, clock, desk, hello, handlers, log } = this.options;
    try {
      await desk.prepareHello();
      const held = desk.held(true);
      this.#answers.record(0, instant(clock));
      this.#told = hello.instance();
      this.send(helloFrame({ ...hello, instance: this.#told, handlers: handlers.all, slots: desk.slots, held }));
      this.#setTimer(WELCOME_TIMEOUT_MS, () => channel.close(4502, "no welcome came"));
      for await (const frame of channel) {
        this.#heardAt = instant(clock);
        this.#take(readFrame(frame), held);
      }
    } catch (error) {
      // A fault of ours: the channel is given up, the supervisor makes another.
      log.error("session_failed", { message: messageOf(error) });
      channel.close(4500, "the runner failed at something");
    } finally {
      this.#timer?.cancel();
      this.open = false;
      if (this.#welcome !== null) this.options.credentials.detach();
      desk.detach();
    }
    const close = await channel.closed;
    return { close, upMs: this.#welcomedAt === null ? null : elapsedMs(clock, this.#welcomedAt), refusal: this.#refusal };
  }

  #take(message: BrokerMessage, held: ReturnType<GrantDesk["held"]>): void {
    const { log, channel } = this.options;
    switch (message.kind) {
      case "welcome":
        if (this.#welcome === null) return this.#welcomed(message.welcome, held);
        return void this.send(protocolFaultFrame("frame_invalid", "a session has one welcome"));
      case "refusal":
        this.#refusal = message;
        return this.#setTimer(REFUSAL_CLOSE_MS, () => channel.close(1000, "refused"));
      case "protocol_fault":
        if (this.options.credentials.refused(message.code, message.message)) return;
        return log.warn("protocol_fault", { code: message.code, message: message.message, call_id: message.callId });
      case "unknown":
        log.warn("frame_unknown");
        return void this.send(protocolFaultFrame("frame_unknown", "this runner does not know this kind of frame"));
      case "ping":
      case "drain":
      case "grant":
      case "cancel":
      case "revoke":
      case "reconcile":
      case "receipt_ack":
      case "update_answer":
      case "chunk_answer":
      case "credential_request":
      case "credential_accepted":
        if (this.#welcome !== null) return this.#takeWelcomed(message);
        return void this.send(protocolFaultFrame("frame_invalid", `a ${message.kind} before the welcome`));
    }
  }

  #takeWelcomed(message: SessionMessage): void {
    const { log, desk } = this.options;
    switch (message.kind) {
      case "ping":
        // The time before the answer is written, so that the count never begins too late.
        this.#answers.record(message.number, instant(this.options.clock));
        desk.answerPing(message.number, message.acknowledged, this);
        // A page may lose the focus without an event of its own, as when a frame in it had it.
        return this.tellInstance();
      case "drain":
        log.info("broker_drains", { reason: message.reason });
        return this.options.onBrokerDrain(message.deadlineMs);
      case "credential_request":
        return void this.options.credentials.requested(message.expiresInMs);
      case "credential_accepted":
        return this.options.credentials.accepted();
      case "grant":
      case "cancel":
      case "revoke":
      case "reconcile":
      case "receipt_ack":
      case "update_answer":
      case "chunk_answer":
        return desk.take(message, this);
    }
  }

  #welcomed(welcome: Welcome, held: ReturnType<GrantDesk["held"]>): void {
    const { channel, clock, desk, handlers, log } = this.options;
    if (!PROTOCOL_VERSIONS.includes(welcome.protocolVersion)) {
      const message = `the broker chose protocol version ${welcome.protocolVersion}, this SDK speaks ${PROTOCOL_VERSIONS.join(", ")}`;
      this.#refusal = { code: "protocol_version_unsupported", message, retryAfterMs: 0 };
      return channel.close(4426, message);
    }
    this.#welcome = welcome;
    this.#welcomedAt = instant(clock);
    log.info("session_welcomed", { epoch: welcome.sessionEpoch, broker_id: welcome.brokerId, held: held.length });
    if (welcome.wantsToolDefinitions) this.send(toolDefinitionsFrame(handlers.all));
    this.#timer?.cancel();
    this.#timer = null;
    this.#pingIntervalMs = welcome.pingIntervalMs;
    if (welcome.pingIntervalMs > 0) this.#watchSilence(Math.max(1_000, welcome.pingIntervalMs * SILENT_INTERVALS));
    const link = { renews: welcome.renewsCredentials, send: (credential: string) => void this.send(credentialFrame(credential)) };
    this.options.credentials.attach(link, this.options.credential);
    desk.attach(this, held);
    this.tellInstance();
    this.options.onWelcome(welcome);
  }

  /** Before the welcome nothing but the hello is said: what changed since is told then. */
  tellInstance(): void {
    if (this.#welcome === null || this.#told === null) return;
    const now = this.options.hello.instance();
    if (now.visibility === this.#told.visibility && now.focused === this.#told.focused) return;
    this.#told = now;
    this.send(instanceStateFrame(now));
  }

  /** The broker's next ping is the answer; one that is not sent to a dead peer either. */
  probe(): void {
    if (this.#pingIntervalMs === 0) return;
    const { clock } = this.options;
    if (elapsedMs(clock, this.#heardAt) < this.#pingIntervalMs) return;
    this.#judgeSilence(Math.max(PROBE_MS, this.#pingIntervalMs + PROBE_MS), this.#pingIntervalMs * SILENT_INTERVALS);
  }

  #watchSilence(limitMs: number): void {
    const { clock } = this.options;
    const silentMs = elapsedMs(clock, this.#heardAt);
    if (silentMs < limitMs) return this.#setTimer(limitMs - silentMs, () => this.#watchSilence(limitMs));
    this.#judgeSilence(PROBE_MS, limitMs);
  }

  /** Closes when nothing is heard for so long from now on; else watches on. */
  #judgeSilence(withinMs: number, limitMs: number): void {
    const { clock, channel, log } = this.options;
    const heardAt = this.#heardAt;
    this.#setTimer(withinMs, () => {
      if (this.#heardAt !== heardAt) return this.#watchSilence(limitMs);
      log.warn("broker_silent", { silent_ms: Math.round(elapsedMs(clock, heardAt)) });
      channel.close(4502, "the broker is silent");
    });
  }

  #setTimer(delayMs: number, task: () => void): void {
    this.#timer?.cancel();
    this.#timer = this.options.clock.schedule(delayMs, () => {
      if (this.open) task();
    });
  }
}
