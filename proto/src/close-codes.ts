/** Close codes of a runner session: the range says whether to redial. Source of the table in `docs/protocol.md`. */

export const CLOSE_CODES = {
  1000: { name: "normal", meaning: "The session ended as planned.", redial: "never" },
  4400: { name: "protocol_violation", meaning: "A frame could not be decoded or came out of order.", redial: "never" },
  4401: { name: "credential_invalid", meaning: "The credential is missing, wrong, revoked or expired.", redial: "with_new_credential" },
  4403: { name: "not_permitted", meaning: "The credential is valid, but not for this binding or subject.", redial: "never" },
  4408: { name: "hello_late", meaning: "No valid hello came within 5 s.", redial: "never" },
  4409: { name: "superseded", meaning: "A newer session of the same runner id took over.", redial: "never" },
  4413: { name: "frame_too_large", meaning: "A frame was over the limit.", redial: "never" },
  4426: { name: "protocol_version_unsupported", meaning: "Broker and runner share no protocol version.", redial: "never" },
  4429: { name: "flooding", meaning: "Too many frames or connections.", redial: "after_retry_after" },
  4500: { name: "internal", meaning: "The broker failed at something; the session can be made again.", redial: "at_once" },
  4501: { name: "draining", meaning: "The broker drains or stops; another one, or a later one, will serve.", redial: "at_once" },
  4502: { name: "unresponsive", meaning: "A ping went unanswered.", redial: "at_once" },
  4503: { name: "ledger_away", meaning: "The broker cannot reach its ledger.", redial: "at_once" },
} as const satisfies Record<number, { name: string; meaning: string; redial: RedialRule }>;

export type RedialRule = "never" | "with_new_credential" | "after_retry_after" | "at_once";
export type CloseCode = keyof typeof CLOSE_CODES;

/** What a runner does after a close with `code`. Codes outside the table, and broken connections, are redialled. */
export function redialRule(code: number): RedialRule {
  return (CLOSE_CODES as Record<number, { redial: RedialRule } | undefined>)[code]?.redial ?? "at_once";
}
