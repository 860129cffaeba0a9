/** What handlers see of the grant that they work for. */
import type { CallContext } from "./context.js";
import type { Grant } from "./messages.js";

/** The context of one grant, with what only one kind of handler sees. `signal` is looked up when it is asked for: most never ask. */
export function callContext<More extends object>(
  grant: Grant,
  journalId: string,
  deadline: Date,
  signal: () => AbortSignal,
  more: More,
): CallContext & More {
  const context: CallContext = {
    callId: grant.callId,
    tool: grant.tool,
    version: grant.version,
    attempt: grant.attempt,
    fence: grant.fence,
    idempotencyKey: grant.idempotencyKey,
    grant: {
      grantId: grant.grantId,
      toolset: grant.toolset,
      toolsetVersion: grant.toolsetVersion,
      session: grant.session,
      traceparent: grant.traceparent,
      token: grant.token,
      journalId,
    },
    subject: grant.subject,
    agent: grant.agent,
    scopes: [...grant.scopes],
    deadline,
    get signal() {
      return signal();
    },
  };
  return Object.assign(context, more);
}
