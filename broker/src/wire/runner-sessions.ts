/**
 * Sessions of runners on this broker: hello to close, over whatever channel.
 *
 * Invariants: no frame counts before an accepted hello; a session of a runner id is superseded by the next one, whose
 * epoch an arbiter gave (B2); a receipt is acknowledged only with the disposition of the append that it caused (G5);
 * pings are driven by one timer wheel and spread by each session's own start.
 */
import { type CloseCode, type Hello, type RunnerFrame, Visibility } from "@toolrunner/proto";
import { FRAME_BYTES_MAX, PROGRESS_BYTES_MAX, RESULT_BYTES_MAX, SLOTS_MAX } from "../domain/limits.js";
import type { Bus, Registry, Subscription } from "../domain/ports/bus.js";
import type { Clock } from "../domain/ports/clock.js";
import type { Log } from "../domain/ports/log.js";
import type { GrantToSend, SessionAnswer, SessionCommand } from "./commands.js";
import type { Dispatcher } from "./dispatcher.js";
import type { Figures } from "./figures.js";
import { grantFrame } from "./frames.js";
import { GrantMemory } from "./grant-memory.js";
import { type AcceptedHello, checkHello, type HandshakeContext, PROTOCOL_VERSIONS } from "./handshake.js";
import type { LedgerWatch } from "./ledger-watch.js";
import type { RunnerChannel, RunnerConnection, RunnerSessions } from "./operations.js";
import { freeSlots, type Session, type SessionRef } from "./session.js";
import type { FrameHandlers } from "./session-frames.js";
import type { SessionRegistry } from "./session-registry.js";
import type { TimerWheel } from "./timer-wheel.js";

/** Unanswered for this many intervals, a ping that was really sent shows that the runner is dead. */
const PINGS_UNANSWERED_MAX = 3;

export interface SessionsContext extends HandshakeContext {
  readonly brokerId: string;
  readonly bus: Bus;
  readonly clock: Clock;
  readonly log: Log;
  readonly figures: Figures;
  readonly timers: TimerWheel;
  readonly registry: SessionRegistry;
  readonly ledgerWatch: LedgerWatch;
  readonly dispatcher: () => Dispatcher;
  readonly frames: () => FrameHandlers;
  /** A development broker asks for the definitions of a runner's tools; undefined: it is none. Told of each binding whose definitions are awaited. */
  readonly definitions: { await(binding: string): () => void } | undefined;
}

/** What the shared record of a session says to other brokers. */
interface SessionRecord {
  readonly brokerId: string;
  readonly journalId: string;
}

export class LocalSessions implements RunnerSessions {
  private records: Registry | undefined;
  private watching: Subscription | undefined;
  private endpoint: Subscription | undefined;
  private stopping = false;
  private readonly memory = new GrantMemory();
  private readonly serving = new Set<Promise<void>>();

  constructor(private readonly context: SessionsContext) {}

  async start(): Promise<void> {
    const { bus, brokerId } = this.context;
    this.records = await bus.registry("sessions");
    this.watching = await this.records.watch((change) => {
      if (change.kind === "put") {
        this.supersedeOlder(change.record.key, change.record.revision);
      }
    });
    this.endpoint = bus.respond(`broker.${brokerId}.session`, async (payload) => {
      const { ref, command } = JSON.parse(payload) as { ref: SessionRef; command: SessionCommand };
      return JSON.stringify(this.onSession(ref, command));
    });
  }

  /** Runners are told to connect elsewhere; what they run is theirs to finish and to report there. */
  async stop(drainMs: number): Promise<void> {
    this.stopping = true;
    for (const session of this.context.registry.all) {
      session.draining = true;
      session.channel.send({ frame: { $case: "drain", value: { reason: "the broker is shutting down", deadlineMs: drainMs } } });
    }
    if (drainMs > 0) {
      await this.idle(drainMs);
    }
    this.closeAll(4501, "the broker is shutting down");
    await Promise.all(this.serving);
    this.watching?.unsubscribe();
    this.endpoint?.unsubscribe();
  }

  serve(channel: RunnerChannel, connection: RunnerConnection): Promise<void> {
    const served = this.run(channel, connection).catch((error: unknown) => {
      this.context.log.error("session_failed", { error: error instanceof Error ? error.message : String(error) });
      channel.close(4500, "internal");
    });
    this.serving.add(served);
    return served.finally(() => this.serving.delete(served));
  }

  closeAll(code: CloseCode, reason: string): void {
    for (const session of [...this.context.registry.all]) {
      session.channel.close(code, reason);
    }
  }

  /** Closes the sessions that a revoked key opened. */
  keyRevoked(keyId: string): void {
    for (const session of [...this.context.registry.all]) {
      if (session.keyId === keyId) {
        session.channel.close(4401, "the runner key was revoked");
      }
    }
  }

  onSession(ref: SessionRef, command: SessionCommand): SessionAnswer {
    const session = this.context.registry.find(ref);
    const present = session === undefined || session.closed ? undefined : session;
    if (command.op === "grant") {
      return this.sendGrant(present, ref.sessionEpoch, command.grant);
    }
    const { op, callId, grantId, fence, reason } = command;
    present?.channel.send({ frame: { $case: op, value: { callId, grantId, fence, reason } } });
    return present === undefined ? "gone" : "sent";
  }

  /** Idempotent by the grant's id. */
  private sendGrant(session: Session | undefined, sessionEpoch: number, grant: GrantToSend): SessionAnswer {
    const known = session?.grants.get(grant.grantId);
    if (known !== undefined) {
      known.driver = grant.driver;
      return "sent";
    }
    const fate = this.memory.fateOf(grant.grantId);
    if (fate !== undefined) {
      return fate === "sent" ? "gone" : "never_sent";
    }
    if (session === undefined || session.ref.sessionEpoch !== sessionEpoch || session.draining) {
      this.memory.remember(grant.grantId, "refused");
      return "never_sent";
    }
    const { callId, grantId, fence, driver } = grant;
    session.grants.set(grantId, { callId, grantId, fence, driver, finished: false, listedFromPing: session.pingNumber + 1 });
    this.context.dispatcher().endReservation(callId);
    session.channel.send(grantFrame(grant, session, this.context.figures.leaseMs, this.context.clock.now()));
    return "sent";
  }

  private async run(channel: RunnerChannel, connection: RunnerConnection): Promise<void> {
    const { clock, figures, timers } = this.context;
    const late = timers.after(figures.helloMs, () => channel.close(4408, `no valid hello came within ${figures.helloMs} ms`));
    let session: Session | undefined;
    let pings: { stop(): void } | undefined;
    try {
      for await (const frame of channel) {
        if (session === undefined) {
          session = await this.greet(channel, connection, frame);
          if (session === undefined) {
            return;
          }
          late.cancel();
          pings = this.ping(session);
          this.open(session, frame);
          continue;
        }
        if (session.closed) {
          // Superseded: what it still sends is sent again on the newer session.
          return;
        }
        if (frame.frame?.$case === "hello") {
          fault(channel, "hello_expected", "a session has one hello, and it is the first frame");
          channel.close(4400, "a second hello");
          return;
        }
        const wasFull = freeSlots(session) <= 0;
        this.context.frames().handle(session, frame.frame);
        if (freeSlots(session) > 0) {
          this.context.dispatcher().slotFreed(session, wasFull);
        }
      }
    } finally {
      late.cancel();
      pings?.stop();
      if (session !== undefined) {
        this.end(session);
        session.awaitsDefinitions?.();
        this.context.dispatcher().sessionRemoved(session);
        const close = await channel.closed;
        this.context.log.info("session_closed", {
          runner_id: session.ref.runnerId,
          binding: session.ref.binding,
          session_epoch: session.ref.sessionEpoch,
          code: close.code,
          by: close.by,
          lasted_ms: Math.round(clock.now() - session.connectedAtMs),
        });
        await this.records?.delete(recordKey(session.ref), session.ref.sessionEpoch);
      }
    }
  }

  /** Checks the hello and answers it; undefined: refused, and the channel is closed. */
  private async greet(channel: RunnerChannel, connection: RunnerConnection, first: RunnerFrame): Promise<Session | undefined> {
    if (first.frame?.$case !== "hello") {
      this.refuse(channel, "hello_expected", "the first frame of a session is a hello", 4400);
      return undefined;
    }
    if (this.stopping) {
      channel.close(4501, "the broker is shutting down");
      return undefined;
    }
    if (this.context.ledgerWatch.away) {
      channel.close(4503, "the broker cannot reach its ledger");
      return undefined;
    }
    const hello = first.frame.value;
    const checked = await checkHello(hello, connection, this.context);
    if (checked.kind === "refused") {
      this.context.log.warn("session_refused", { code: checked.code, remote_address: connection.remoteAddress });
      this.refuse(channel, checked.code, checked.message, checked.close);
      return undefined;
    }
    const { application } = checked.principal;
    const ref = { brokerId: this.context.brokerId, application, binding: hello.binding, runnerId: hello.runnerId };
    const record: SessionRecord = { brokerId: this.context.brokerId, journalId: hello.journalId };
    if (this.records === undefined) {
      throw new Error("sessions are served before the broker started");
    }
    const sessionEpoch = await this.records.put(recordKey(ref), JSON.stringify(record));
    const session = this.sessionFrom({ ...ref, sessionEpoch }, hello, checked, channel);
    this.supersede(this.context.registry.find(session.ref), sessionEpoch);
    return session;
  }

  private open(session: Session, frame: RunnerFrame): void {
    const { figures, clock, log, registry } = this.context;
    registry.add(session);
    session.awaitsDefinitions = this.context.definitions?.await(session.ref.binding);
    session.channel.send({
      frame: {
        $case: "welcome",
        value: {
          protocolVersion: PROTOCOL_VERSIONS[0] ?? 1,
          sessionEpoch: session.ref.sessionEpoch,
          brokerId: this.context.brokerId,
          pingIntervalMs: figures.pingIntervalMs,
          leaseMs: figures.leaseMs,
          serverTimeUnixMs: clock.now(),
          limits: { frameBytes: FRAME_BYTES_MAX, resultBytes: RESULT_BYTES_MAX, progressBytes: PROGRESS_BYTES_MAX, slots: SLOTS_MAX },
          wantsToolDefinitions: this.context.definitions !== undefined,
        },
      },
    });
    log.info("session_opened", {
      runner_id: session.ref.runnerId,
      binding: session.ref.binding,
      session_epoch: session.ref.sessionEpoch,
      transport: session.channel.transport,
      handlers: session.handlers.size,
      slots: session.slots,
    });
    const held = frame.frame?.$case === "hello" ? frame.frame.value.held : [];
    this.context.frames().held(session, held);
    this.context.dispatcher().sessionAdded(session);
  }

  private sessionFrom(ref: SessionRef, hello: Hello, checked: AcceptedHello, channel: RunnerChannel): Session {
    const state = hello.instanceState;
    return {
      ref,
      channel,
      bindingKind: checked.bindingKind,
      subject: checked.subject,
      keyId: checked.principal.keyId,
      journalId: hello.journalId,
      sdk: `${hello.sdkName} ${hello.sdkVersion}`.trim(),
      connectedAtMs: this.context.clock.now(),
      handlers: checked.handlers,
      grants: new Map(),
      slots: checked.slots,
      reserved: 0,
      visible: state?.visibility !== Visibility.HIDDEN,
      focused: state?.focused ?? false,
      draining: false,
      closed: false,
      pingNumber: 0,
      pongNumber: 0,
      declines: 0,
      leftAloneUntilMs: 0,
      awaitsDefinitions: undefined,
    };
  }

  private ping(session: Session): { stop(): void } {
    const { timers, figures } = this.context;
    let task = timers.after(figures.pingIntervalMs, () => beat(this.context.log));
    function beat(log: Log): void {
      if (session.closed) {
        return;
      }
      if (session.pingNumber - session.pongNumber >= PINGS_UNANSWERED_MAX) {
        log.warn("session_unresponsive", {
          runner_id: session.ref.runnerId,
          session_epoch: session.ref.sessionEpoch,
          ping: session.pingNumber,
        });
        session.channel.close(4502, "a ping went unanswered");
        return;
      }
      session.pingNumber += 1;
      session.channel.send({ frame: { $case: "ping", value: { number: session.pingNumber, acknowledged: session.pongNumber } } });
      task = timers.after(figures.pingIntervalMs, () => beat(log));
    }
    return { stop: () => task.cancel() };
  }

  /** From now on the session takes and gives nothing; what it was sent stays known. Idempotent. */
  private end(session: Session): void {
    session.closed = true;
    for (const grantId of session.grants.keys()) {
      this.memory.remember(grantId, "sent");
    }
    this.context.registry.remove(session);
  }

  private supersedeOlder(key: string, epoch: number): void {
    const [application, binding, runnerId] = key.split(".");
    if (application !== undefined && binding !== undefined && runnerId !== undefined) {
      this.supersede(this.context.registry.find({ application, binding, runnerId }), epoch);
    }
  }

  private supersede(session: Session | undefined, epoch: number): void {
    if (session === undefined || session.ref.sessionEpoch >= epoch) {
      return;
    }
    this.end(session);
    session.channel.close(4409, "a newer session of the same runner id took over");
  }

  private refuse(channel: RunnerChannel, code: string, message: string, close: Parameters<typeof channel.close>[0]): void {
    channel.send({ frame: { $case: "refusal", value: { code, message, supportedVersions: [...PROTOCOL_VERSIONS], retryAfterMs: 0 } } });
    channel.close(close, message.slice(0, 120));
  }

  private idle(withinMs: number): Promise<void> {
    const { timers, clock, registry } = this.context;
    const endsAt = clock.monotonic() + withinMs;
    return new Promise((resolve) => {
      const look = (): void => {
        const busy = [...registry.all].some((session) => session.grants.size > 0);
        if (!busy || clock.monotonic() >= endsAt) {
          resolve();
          return;
        }
        timers.after(50, look);
      };
      look();
    });
  }
}

function fault(channel: RunnerChannel, code: string, message: string): void {
  channel.send({ frame: { $case: "protocolFault", value: { code, message, callId: "" } } });
}

/** A registry key of its own for each runner: ids are checked for what a key can hold. */
function recordKey(ref: { readonly application: string; readonly binding: string; readonly runnerId: string }): string {
  return `${ref.application}.${ref.binding}.${ref.runnerId}`;
}
