/** A session as it begins: what its hello said, and nothing sent yet. */
import type { RunnerChannel } from "./operations.js";
import { type Session, sightOf } from "./session.js";
import type { Greeted } from "./session-greeting.js";

/** What its broker gives to it. */
export type SessionParts = Pick<Session, "connectedAtMs" | "grants" | "work" | "draining">;

export function newSession({ ref, hello, checked }: Greeted, channel: RunnerChannel, parts: SessionParts): Session {
  const state = hello.instanceState;
  return {
    ...parts,
    ref,
    channel,
    bindingKind: checked.bindingKind,
    subject: checked.subject,
    keyId: checked.principal.keyId,
    journalId: hello.journalId,
    sdk: `${hello.sdkName} ${hello.sdkVersion}`.trim(),
    handlers: checked.handlers,
    slots: checked.slots,
    reserved: 0,
    sight: sightOf(state?.visibility),
    focused: state?.focused ?? false,
    expired: false,
    congested: false,
    bringing: false,
    closed: false,
    pingNumber: 0,
    pongNumber: 0,
    relayedPong: undefined,
    newsCount: 0,
    declines: 0,
    leftAloneUntilMs: 0,
    awaitsDefinitions: undefined,
  };
}
