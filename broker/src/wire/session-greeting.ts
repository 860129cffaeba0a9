/**
 * From a connection's first frame to a session: checks the hello, and lets the arbiter give the session its epoch (B2).
 *
 * Invariants: of two hellos of one runner that are greeted at once, here or on two brokers, only the one with the higher epoch
 * becomes a session; a key that is revoked meanwhile opens none; a connection that is gone by then supersedes nobody.
 */
import type { CloseCode, Hello, RunnerFrame } from "@toolrunner/proto";
import { BusError, type Registry } from "../domain/ports/bus.js";
import type { Log } from "../domain/ports/log.js";
import type { SessionMeter } from "../domain/ports/meter.js";
import { type AcceptedHello, checkHello, type HandshakeContext, PROTOCOL_VERSIONS } from "./handshake.js";
import type { RunnerChannel, RunnerConnection } from "./operations.js";
import type { SessionRef } from "./session.js";
import { encodeSessionRecord, type NewestSession, sessionKey, supersededClose } from "./session-record.js";

export interface GreetingContext extends HandshakeContext {
  readonly brokerId: string;
  readonly log: Log;
  readonly meter?: SessionMeter | undefined;
  readonly records: () => Registry | undefined;
  /** Why no session is opened now; undefined: it may be. */
  readonly unavailable: () => { readonly close: CloseCode; readonly reason: string } | undefined;
  /** The present session of this runner here. */
  readonly present: (ref: SessionRef) => NewestSession | undefined;
}

export interface Greeted {
  readonly ref: SessionRef;
  readonly hello: Hello;
  readonly checked: AcceptedHello;
}

/** One hello on its way to a session. */
interface Greeting {
  readonly key: string;
  readonly keyId: string;
  newest: NewestSession | undefined;
  revoked: boolean;
}

export class Greetings {
  /** By the key of the runner's record. */
  private readonly under = new Map<string, Set<Greeting>>();

  constructor(private readonly context: GreetingContext) {}

  /** A session of this runner got an epoch, somewhere. */
  sawEpoch(key: string, session: NewestSession): void {
    for (const greeting of this.under.get(key) ?? []) {
      greeting.newest = newerOf(greeting.newest, session);
    }
  }

  keyRevoked(keyId: string): void {
    for (const greetings of this.under.values()) {
      for (const greeting of greetings) {
        greeting.revoked ||= greeting.keyId === keyId;
      }
    }
  }

  /** Undefined: it was refused, and the channel is closed. `gone`: the connection ended. */
  async greet(channel: RunnerChannel, connection: RunnerConnection, first: RunnerFrame, gone: () => boolean): Promise<Greeted | undefined> {
    if (first.frame?.$case !== "hello") {
      this.context.meter?.sessionRefused("hello_expected");
      refuse(channel, "hello_expected", "the first frame of a session is a hello", 4400);
      return undefined;
    }
    if (this.closedFor(channel)) {
      return undefined;
    }
    const hello = first.frame.value;
    const checked = await checkHello(hello, connection, this.context);
    if (checked.kind === "refused") {
      this.context.meter?.sessionRefused(checked.code);
      this.context.log.warn("session_refused", { code: checked.code, remote_address: connection.remoteAddress });
      refuse(channel, checked.code, checked.message, checked.close);
      return undefined;
    }
    const { application, keyId } = checked.principal;
    const runner = { brokerId: this.context.brokerId, application, binding: hello.binding, runnerId: hello.runnerId };
    const greeting: Greeting = { key: sessionKey(runner), keyId, newest: undefined, revoked: false };
    const sameRunner = this.under.get(greeting.key) ?? new Set();
    this.under.set(greeting.key, sameRunner.add(greeting));
    try {
      const sessionEpoch = gone() ? undefined : await this.epochFor(greeting, hello, channel);
      if (sessionEpoch === undefined || gone() || this.closedFor(channel)) {
        return undefined;
      }
      const ref: SessionRef = { ...runner, sessionEpoch };
      if (greeting.revoked) {
        channel.close(4401, "the runner key was revoked");
        return undefined;
      }
      const newest = newerOf(greeting.newest, this.context.present(ref));
      if (newest !== undefined && newest.sessionEpoch > sessionEpoch) {
        const { code, reason } = supersededClose(hello, newest);
        channel.close(code, reason);
        return undefined;
      }
      return { ref, hello, checked };
    } finally {
      sameRunner.delete(greeting);
      if (sameRunner.size === 0) {
        this.under.delete(greeting.key);
      }
    }
  }

  private async epochFor(greeting: Greeting, hello: Hello, channel: RunnerChannel): Promise<number | undefined> {
    const records = this.context.records();
    if (records === undefined) {
      throw new Error("sessions are served before the broker started");
    }
    const { brokerId, log } = this.context;
    try {
      return await records.put(greeting.key, encodeSessionRecord({ brokerId, journalId: hello.journalId }));
    } catch (error) {
      if (!(error instanceof BusError)) {
        throw error;
      }
      log.warn("session_not_recorded", { runner_id: hello.runnerId, code: error.code });
      channel.close(4500, "the broker cannot reach the other brokers now");
      return undefined;
    }
  }

  private closedFor(channel: RunnerChannel): boolean {
    const unavailable = this.context.unavailable();
    if (unavailable === undefined) {
      return false;
    }
    channel.close(unavailable.close, unavailable.reason);
    return true;
  }
}

function newerOf(a: NewestSession | undefined, b: NewestSession | undefined): NewestSession | undefined {
  return a === undefined || (b !== undefined && b.sessionEpoch > a.sessionEpoch) ? b : a;
}

function refuse(channel: RunnerChannel, code: string, message: string, close: CloseCode): void {
  channel.send({ frame: { $case: "refusal", value: { code, message, supportedVersions: [...PROTOCOL_VERSIONS], retryAfterMs: 0 } } });
  channel.close(close, message.slice(0, 120));
}
