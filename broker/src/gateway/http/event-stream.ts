/**
 * Server-sent events of one call.
 *
 * Events are pulled one at a time, and only while the socket takes them: a slow reader holds no more than one event and
 * what the socket buffers. A reader that takes nothing for {@link EventStreamTimes.stallMs} is cut off. Whatever ends the
 * stream (end of events, drain, the client's going, a failure) also ends the iteration behind it.
 */

import type { ServerResponse } from "node:http";
import type { CallEventView } from "../../domain/call-view.js";
import type { WaitSignal } from "../../wire/operations.js";

/** Durations of a stream. */
export interface EventStreamTimes {
  /** A comment line this often keeps proxies and clients from giving up. */
  readonly commentMs: number;
  /** How long a reader may take nothing. */
  readonly stallMs: number;
}

/** How a stream ended. */
export type EventStreamEnd = "complete" | "cut" | "stalled" | { readonly failed: unknown };

/**
 * Writes `events` to `response` and ends it. `abort` must abort the signal that the events were asked for with: it is
 * called when the reader stalls. Never rejects.
 */
export async function streamEvents(
  response: ServerResponse,
  events: AsyncIterable<CallEventView>,
  signal: WaitSignal,
  times: EventStreamTimes,
): Promise<EventStreamEnd> {
  const comments = setInterval(() => {
    if (!response.writableNeedDrain) response.write(": still here\n\n");
  }, times.commentMs);
  let end: EventStreamEnd = "complete";
  try {
    for await (const event of events) {
      if (signal.aborted) break;
      const more = response.write(`id: ${event.seq}\nevent: ${event.event}\ndata: ${JSON.stringify(event)}\n\n`);
      if (!more && !(await drained(response, signal, times.stallMs))) {
        if (!signal.aborted) end = "stalled";
        break;
      }
    }
    if (signal.aborted) end = "cut";
  } catch (error) {
    end = signal.aborted ? "cut" : { failed: error };
  } finally {
    clearInterval(comments);
  }
  if (end === "stalled" || typeof end === "object") {
    // The reader must not take a broken stream for a complete one.
    response.destroy();
  } else {
    response.end();
  }
  return end;
}

/** False when the socket took nothing for `stallMs`, or the stream is over. */
function drained(response: ServerResponse, signal: WaitSignal, stallMs: number): Promise<boolean> {
  return new Promise((resolve) => {
    const settle = (result: boolean) => () => {
      clearTimeout(timer);
      response.off("drain", onDrain);
      response.off("close", onOver);
      signal.removeEventListener("abort", onOver);
      resolve(result);
    };
    const onDrain = settle(true);
    const onOver = settle(false);
    const timer = setTimeout(onOver, stallMs);
    response.once("drain", onDrain);
    response.once("close", onOver);
    signal.addEventListener("abort", onOver, { once: true });
    if (signal.aborted || response.destroyed) onOver();
  });
}

/** Whether an `accept` header asks for server-sent events. */
export function wantsEventStream(accept: string | undefined): boolean {
  if (accept === undefined) return false;
  return accept.split(",").some((range) => {
    const [type, ...parameters] = range.split(";").map((part) => part.trim().toLowerCase());
    return type === "text/event-stream" && !parameters.some((parameter) => /^q=0(\.0*)?$/.test(parameter));
  });
}
