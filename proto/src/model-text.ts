/**
 * What a model is told about a call that has no result: what happened, the details, and what to do next.
 * Whether to repeat is always said, because a model that is not told will try.
 */
import { cutUtf8, utf8Length } from "./utf8.js";

/** Largest text, UTF-8 bytes: below the smallest budget that a tool can have. */
export const MODEL_TEXT_BYTES_MAX = 1_000;

interface ModelText {
  readonly happened: string;
  readonly next: string;
}

const TEXTS: Readonly<Record<string, ModelText>> = {
  handler_error: {
    happened: "The tool failed with an unexpected error.",
    next: "It may have changed something before it failed: check before you repeat the call.",
  },
  result_invalid: {
    happened: "The tool ran, but its result does not have the form that it promises, so it is not shown.",
    next: "Do not repeat the call to get another result: what it changed stays changed.",
  },
  result_not_json: {
    happened: "The tool ran, but its result cannot be passed on.",
    next: "Do not repeat the call to get another result: what it changed stays changed.",
  },
  result_too_large: {
    happened: "The tool ran, but its result is too large to be passed on.",
    next: "Ask for less if the tool only reads; if it changes something, that has been done already.",
  },
  attempts_exhausted: {
    happened: "The tool could not be run to its end: every attempt was interrupted.",
    next: "Do not repeat the call at once; go on another way or tell the user.",
  },
  not_applied: {
    happened: "The call was not carried out, and nothing was changed.",
    next: "You may make the call again if it is still wanted.",
  },
  outcome_unknown: {
    happened: "It is unknown whether the call took effect.",
    next: "Do not repeat it. Find out by reading what it would have changed, or tell the user.",
  },
  call_timed_out: {
    happened: "The call did not finish within its time.",
    next: "Repeat it only if it is still needed, with less work or more time.",
  },
  call_cancelled: {
    happened: "The call was cancelled.",
    next: "Do not repeat it unless you are asked to.",
  },
  confirmation_denied: {
    happened: "A person refused this call, and it was not carried out.",
    next: "Do not try it again or by another way unless they ask for it.",
  },
  confirmation_expired: {
    happened: "Nobody confirmed the call in time, and it was not carried out.",
    next: "Ask the user whether they want it before you call again.",
  },
  no_longer_authorized: {
    happened: "The call was not carried out: whoever it was made for may not make it any more.",
    next: "Do not try it again unasked; tell the user.",
  },
  forbidden: {
    happened: "The application that runs the tool does not allow this call.",
    next: "Do not try it again unless the user changes what is allowed.",
  },
};

/**
 * The text for a call that ended with the error `code` and `message`. Any code of type `call_error`, or one that the
 * tool's own author chose. At most {@link MODEL_TEXT_BYTES_MAX} bytes: a longer message is cut between characters and ends in "…".
 */
export function modelText(code: string, message: string): string {
  const text = Object.hasOwn(TEXTS, code) ? TEXTS[code] : undefined;
  const happened = text?.happened ?? `The tool reported an error (${shorten(code, 100)}).`;
  const next = text?.next ?? "Act on what it says; the same call will most likely end the same way.";
  const details = message.trim();
  if (details === "") return `${happened} ${next}`;
  const room = MODEL_TEXT_BYTES_MAX - utf8Length(`${happened} Details:  ${next}`);
  return `${happened} Details: ${shorten(details, room)} ${next}`;
}

function shorten(text: string, maxBytes: number): string {
  if (utf8Length(text) <= maxBytes) return text;
  return `${cutUtf8(text, maxBytes - utf8Length("…"))}…`;
}
