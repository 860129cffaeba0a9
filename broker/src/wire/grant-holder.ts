/** What a grant says about the session that holds it. */
import type { GrantHolder } from "../domain/call/call-state.js";
import type { Session } from "./session.js";

export function holderOf(session: Session, handlerKey: string, brokerId: string): GrantHolder {
  const handler = session.handlers.get(handlerKey);
  return {
    runnerId: session.ref.runnerId,
    sessionEpoch: session.ref.sessionEpoch,
    journalId: session.journalId,
    brokerId,
    handlerReadOnly: handler?.readOnly ?? false,
    handlerIdempotent: handler?.idempotent ?? false,
    handlerCancellable: handler?.cancellable ?? false,
  };
}
