/**
 * Sessions of runners on this broker: hello to close, over whatever channel.
 *
 * Invariants: no frame counts before an accepted hello; a session of a runner id is superseded by the next one, whose
 * epoch an arbiter gave (B2); a receipt is acknowledged only with the disposition of the append that it caused (G5); a grant
 * is sent once, on the session and for the claim that it was made for, or never (G1); pings are spread over their interval,
 * whenever sessions begin.
 */
import type { RunnerFrame } from "@toolrunner/proto";
import type { Bus, Registry, Subscription } from "../domain/ports/bus.js";
import type { Clock } from "../domain/ports/clock.js";
import type { Log } from "../domain/ports/log.js";
import type { SessionMeter } from "../domain/ports/meter.js";
import type { GrantToSend, SessionAnswer, SessionCommand } from "./commands.js";
import type { Dispatcher } from "./dispatcher.js";
import type { Figures } from "./figures.js";
import { grantFrame, sessionLimits } from "./frames.js";
import { GrantMemory } from "./grant-memory.js";
import { type HandshakeContext, PROTOCOL_VERSIONS } from "./handshake.js";
import { inSteps } from "./in-steps.js";
import type { LedgerWatch } from "./ledger-watch.js";
import { metered } from "./metered-channel.js";
import { newSession } from "./new-session.js";
import type { Claim, OfferDesk } from "./offer-desk.js";
import type { RunnerChannel, RunnerConnection, RunnerSessions } from "./operations.js";
import { PingRing, type PingSlot } from "./ping-ring.js";
import { LOCAL_CLAIM } from "./placement.js";
import { freeSlots, type Session, type SessionRef } from "./session.js";
import { SessionCredentials } from "./session-credentials.js";
import { closeInTurn, drainSessions } from "./session-drain.js";
import type { FrameHandlers } from "./session-frames.js";
import { SessionGrants } from "./session-grants.js";
import { type Greeted, Greetings } from "./session-greeting.js";
import { isCongested, isFull, noteSent } from "./session-pressure.js";
import { decodeSessionRecord, type NewestSession, runnerOfKey, sessionKey, supersededClose } from "./session-record.js";
import type { SessionRegistry } from "./session-registry.js";
import { SessionWork } from "./session-work.js";
import { settledWithin } from "./settled-within.js";
import type { TimerWheel } from "./timer-wheel.js";

/** Unanswered for this many intervals, a ping that was really sent shows that the runner is dead. */
const PINGS_UNANSWERED_MAX = 3;
/** How long the end of a broker waits for its sessions to close, when their drain is over. */
const CLOSE_MS = 500;
const LEDGER_AWAY = "the broker cannot reach its ledger";

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
  readonly desk: () => OfferDesk;
  readonly frames: () => FrameHandlers;
  /** A development broker asks for the definitions of a runner's tools; undefined: it is none. Told of each binding whose definitions are awaited. */
  readonly definitions: { await(binding: string): () => void } | undefined;
  readonly meter?: SessionMeter | undefined;
  /** Largest result of a call, in bytes. */
  readonly resultBytesMax: number;
}

export class LocalSessions implements RunnerSessions {
  records: Registry | undefined;
  private watching: Subscription | undefined;
  private endpoint: Subscription | undefined;
  private stopping = false;
  private readonly memory = new GrantMemory();
  private readonly greetings: Greetings;
  private readonly pings: PingRing<Session>;
  private readonly credentials: SessionCredentials;
  private readonly serving = new Map<RunnerChannel, Promise<void>>();
  /** A session may be granted calls again. */
  private readonly relieved = (session: Session): void => this.context.dispatcher().slotFreed(session, true);

  constructor(private readonly context: SessionsContext) {
    const { timers, clock, figures } = context;
    this.pings = new PingRing({ timers, clock, intervalMs: figures.pingIntervalMs }, (session) => this.ping(session));
    this.credentials = new SessionCredentials({ ...context, renewed: this.relieved });
    this.greetings = new Greetings({
      brokerId: context.brokerId,
      log: context.log,
      meter: context.meter,
      authenticator: context.authenticator,
      catalog: context.catalog,
      registersBindings: context.registersBindings,
      records: () => this.records,
      unavailable: () => {
        if (this.stopping) {
          return { close: 4501, reason: "the broker is shutting down" };
        }
        return context.ledgerWatch.away ? { close: 4503, reason: LEDGER_AWAY } : undefined;
      },
      present: (ref) => {
        const session = context.registry.find(ref);
        return session === undefined ? undefined : { sessionEpoch: session.ref.sessionEpoch, journalId: session.journalId };
      },
    });
  }

  async start(): Promise<void> {
    const { bus, brokerId } = this.context;
    this.records = await bus.registry("sessions");
    const watching = await this.records.watch((change) => {
      if (change.kind === "put") {
        const { key, revision, value } = change.record;
        const newer = { sessionEpoch: revision, journalId: decodeSessionRecord(value).journalId };
        this.greetings.sawEpoch(key, newer);
        const runner = runnerOfKey(key);
        this.supersede(runner === undefined ? undefined : this.context.registry.find(runner), newer);
      }
    });
    if (this.stopping) {
      watching.unsubscribe();
      return;
    }
    this.watching = watching;
    this.endpoint = bus.respond(`broker.${brokerId}.session`, async (payload) => {
      const { ref, command } = JSON.parse(payload) as { ref: SessionRef; command: SessionCommand };
      return JSON.stringify(this.onSession(ref, command));
    });
  }

  /** Runners are told to connect elsewhere; what they run is theirs to finish and to report there. */
  async stop(drainMs: number): Promise<void> {
    this.stopping = true;
    const { clock, registry, timers } = this.context;
    await drainSessions({ timers, clock, sessions: () => registry.all }, drainMs);
    // Also those that are still being greeted.
    await inSteps(clock, this.serving.keys(), (channel) => channel.close(4501, "the broker is shutting down"));
    await settledWithin(this.context.timers, Promise.all(this.serving.values()), CLOSE_MS);
    for (const session of [...this.context.registry.all]) {
      this.end(session);
    }
    this.watching?.unsubscribe();
    this.endpoint?.unsubscribe();
  }

  /** Connections that are not over. */
  get size(): number {
    return this.serving.size;
  }

  serve(bare: RunnerChannel, connection: RunnerConnection): Promise<void> {
    const channel = metered(bare, this.context.meter);
    const served = this.run(channel, connection)
      .catch((error: unknown) => {
        this.context.log.error("session_failed", { error: error instanceof Error ? error.message : String(error) });
        channel.close(4500, "internal");
      })
      .finally(() => this.serving.delete(channel));
    this.serving.set(channel, served);
    return served;
  }

  /** Sends the runners to other brokers, for as long as this one cannot reach its ledger. */
  ledgerAway(): void {
    const { timers, registry, ledgerWatch } = this.context;
    void closeInTurn(
      { timers, sessions: () => registry.all },
      (session) => session.channel.close(4503, LEDGER_AWAY),
      () => this.stopping || !ledgerWatch.away,
    );
  }

  /** Closes the sessions that a revoked key opened. */
  keyRevoked(keyId: string): void {
    this.greetings.keyRevoked(keyId);
    this.credentials.keyRevoked(keyId);
    for (const session of [...this.context.registry.all]) {
      if (session.keyId === keyId) {
        session.channel.close(4401, "the runner key was revoked");
      }
    }
  }

  /** Removes the records of sessions that a broker left behind that is gone. */
  async forgetSessionsOf(brokerId: string): Promise<void> {
    for (const { key, value, revision } of (await this.records?.list()) ?? []) {
      if (decodeSessionRecord(value).brokerId === brokerId) {
        await this.records?.delete(key, revision);
      }
    }
  }

  onSession(ref: SessionRef, command: SessionCommand): SessionAnswer {
    const session = this.context.registry.find(ref);
    const present = session === undefined || session.closed ? undefined : session;
    if (command.op === "grant") {
      return this.sendGrant(present, ref.sessionEpoch, command.grant);
    }
    const questions = this.context.frames().questions;
    if (command.op === "can_reconcile" || command.op === "reconcile") {
      if (present === undefined || present.ref.sessionEpoch !== ref.sessionEpoch) {
        return "gone";
      }
      return command.op === "reconcile" ? questions.send(present, command.question) : questions.canAsk(present, command.tool);
    }
    const { op, callId, grantId, fence, reason } = command;
    if (present !== undefined && op === "revoke") {
      questions.forget(present, grantId);
    }
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
    const claim = this.claimOf(session, grant);
    if (
      session === undefined ||
      claim?.session !== session ||
      session.ref.sessionEpoch !== sessionEpoch ||
      session.draining ||
      session.expired
    ) {
      claim?.release();
      this.memory.remember(grant.grantId, "refused");
      return "never_sent";
    }
    if (isFull(session)) {
      noteSent(session, this.relieved);
      claim.release();
      this.memory.remember(grant.grantId, "refused");
      return "never_sent";
    }
    const { callId, grantId, fence, driver } = grant;
    const { figures, clock } = this.context;
    session.grants.add({ callId, grantId, fence, driver, listedFromPing: session.pingNumber + 1 });
    claim.release();
    session.channel.send(
      grantFrame(grant, session, {
        leaseMs: figures.leaseMs,
        nowMs: clock.now(),
        pongNumber: claim.pongNumber,
        resultBytesMax: this.context.resultBytesMax,
      }),
    );
    noteSent(session, this.relieved);
    return "sent";
  }

  /** The claim that the grant was made for; undefined: there is none, or not any more. */
  private claimOf(session: Session | undefined, grant: GrantToSend): Claim | undefined {
    if (grant.offerId === LOCAL_CLAIM) {
      // Reserved by the placement, which is in this process.
      return session === undefined ? undefined : { session, pongNumber: session.pongNumber, release: () => undefined };
    }
    return grant.offerId === null ? undefined : this.context.desk().take(grant.offerId, grant.callId);
  }

  private async run(channel: RunnerChannel, connection: RunnerConnection): Promise<void> {
    const { clock, figures, timers } = this.context;
    const late = timers.after(figures.helloMs, () => channel.close(4408, `no valid hello came within ${figures.helloMs} ms`));
    let gone = false;
    const closed = channel.closed.then((close) => {
      gone = true;
      return close;
    });
    let session: Session | undefined;
    let slot: PingSlot | undefined;
    try {
      for await (const frame of channel) {
        this.context.meter?.frameReceived(channel.transport, frame.frame?.$case ?? "unknown");
        if (session === undefined) {
          // The hello came; how long it takes to check it is not the runner's doing.
          late.cancel();
          const greeted = await this.greetings.greet(channel, connection, frame, () => gone);
          if (greeted === undefined) {
            return;
          }
          session = this.sessionFrom(greeted, channel);
          slot = this.pings.add(session);
          this.open(session, greeted);
          continue;
        }
        if (session.work.crowded) {
          await session.work.room();
        }
        if (isCongested(session)) {
          await channel.drained();
        }
        if (session.closed) {
          // Superseded: what it still sends is sent again on the newer session.
          return;
        }
        this.take(session, frame);
      }
    } finally {
      late.cancel();
      if (session !== undefined) {
        if (slot !== undefined) {
          this.pings.remove(session, slot);
        }
        this.end(session);
        session.awaitsDefinitions?.();
        this.forget(session);
        const close = await closed;
        this.context.meter?.sessionClosed(channel.transport, session.bindingKind, close.code);
        this.context.log.info("session_closed", {
          runner_id: session.ref.runnerId,
          binding: session.ref.binding,
          session_epoch: session.ref.sessionEpoch,
          code: close.code,
          by: close.by,
          lasted_ms: Math.round(clock.now() - session.connectedAtMs),
        });
      }
    }
  }

  private take(session: Session, frame: RunnerFrame): void {
    if (frame.frame?.$case === "hello") {
      fault(session.channel, "hello_expected", "a session has one hello, and it is the first frame");
      session.channel.close(4400, "a second hello");
      return;
    }
    if (frame.frame?.$case === "credential") {
      this.credentials.take(session, frame.frame.value.credential);
      return;
    }
    const wasFull = freeSlots(session) <= 0;
    this.context.frames().handle(session, frame.frame);
    if (freeSlots(session) > 0) {
      this.context.dispatcher().slotFreed(session, wasFull);
    }
  }

  private open(session: Session, { hello, checked }: Greeted): void {
    const { figures, clock, log, registry } = this.context;
    this.supersede(registry.find(session.ref), { sessionEpoch: session.ref.sessionEpoch, journalId: session.journalId });
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
          limits: sessionLimits(this.context.resultBytesMax),
          wantsToolDefinitions: this.context.definitions !== undefined,
          takesCallUpdates: true,
          renewsCredentials: true,
        },
      },
    });
    this.context.meter?.sessionOpened(session.channel.transport, session.bindingKind);
    log.info("session_opened", {
      runner_id: session.ref.runnerId,
      binding: session.ref.binding,
      session_epoch: session.ref.sessionEpoch,
      transport: session.channel.transport,
      handlers: session.handlers.size,
      slots: session.slots,
    });
    this.credentials.opened(session, checked.principal, hello.renewsCredentials);
    this.context.frames().hello(session, hello.held);
    this.context.dispatcher().sessionAdded(session);
  }

  private sessionFrom(greeted: Greeted, channel: RunnerChannel): Session {
    const { clock, timers } = this.context;
    return newSession(greeted, channel, {
      connectedAtMs: clock.now(),
      grants: new SessionGrants((grantId) => this.memory.remember(grantId, "sent")),
      work: new SessionWork(timers),
      draining: this.stopping,
    });
  }

  private ping(session: Session): void {
    if (session.closed) {
      return;
    }
    if (session.pingNumber - session.pongNumber >= PINGS_UNANSWERED_MAX) {
      this.context.log.warn("session_unresponsive", {
        runner_id: session.ref.runnerId,
        session_epoch: session.ref.sessionEpoch,
        ping: session.pingNumber,
      });
      session.channel.close(4502, "a ping went unanswered");
      return;
    }
    if (session.relayedPong !== undefined) {
      session.pingNumber += 1;
      session.channel.send({ frame: { $case: "ping", value: { number: session.pingNumber, acknowledged: session.relayedPong } } });
    }
  }

  /** From now on the session takes and gives nothing; what it was sent stays known. Idempotent. */
  private end(session: Session): void {
    if (session.closed) {
      return;
    }
    session.closed = true;
    session.work.end();
    this.context.frames().ended(session);
    this.credentials.ended(session);
    for (const grantId of session.grants.ids()) {
      this.memory.remember(grantId, "sent");
    }
    this.context.registry.remove(session);
    this.context.dispatcher().sessionRemoved(session);
  }

  /** The record goes, unless a newer session wrote it by now. Nobody waits for that. */
  private forget(session: Session): void {
    this.records?.delete(sessionKey(session.ref), session.ref.sessionEpoch).catch((error: unknown) =>
      this.context.log.debug("session_record_not_removed", {
        runner_id: session.ref.runnerId,
        error: error instanceof Error ? error.message : String(error),
      }),
    );
  }

  private supersede(session: Session | undefined, newer: NewestSession): void {
    if (session === undefined || session.ref.sessionEpoch >= newer.sessionEpoch) {
      return;
    }
    this.end(session);
    const { code, reason } = supersededClose(session, newer);
    session.channel.close(code, reason);
  }
}

function fault(channel: RunnerChannel, code: string, message: string): void {
  channel.send({ frame: { $case: "protocolFault", value: { code, message, callId: "" } } });
}
