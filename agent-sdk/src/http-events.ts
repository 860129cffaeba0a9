/**
 * One server-sent event stream, read as it comes: nothing is read ahead of the reader of the iteration, and leaving the
 * iteration ends the request.
 */

import { createParser } from "eventsource-parser";
import { abortedError, reasonOf, ToolRunnerError } from "./errors.js";
import { refusalFrom } from "./http-refusal.js";
import type { CallEvent } from "./types.js";

/** A stream to open. */
export interface EventStreamRequest {
  readonly url: string;
  readonly authorization: string;
  readonly afterSeq: number;
  readonly signal: AbortSignal | undefined;
  /** Without a byte for this long it counts as broken. */
  readonly silenceMs: number;
  readonly doFetch: typeof fetch;
}

/** Reads one stream to its end. Throws `ToolRunnerError`: `unreachable` when it breaks, or the broker's refusal. */
export async function* readEvents(request: EventStreamRequest): AsyncGenerator<CallEvent, void> {
  const { signal } = request;
  const controller = new AbortController();
  const onAbort = (): void => controller.abort();
  signal?.addEventListener("abort", onAbort, { once: true });
  if (signal?.aborted) onAbort();
  let silent = false;
  let watchdog: ReturnType<typeof setTimeout> | undefined;
  const heard = (): void => {
    clearTimeout(watchdog);
    watchdog = setTimeout(() => {
      silent = true;
      controller.abort();
    }, request.silenceMs);
  };
  try {
    heard();
    const response = await request.doFetch(request.url, {
      headers: {
        authorization: request.authorization,
        accept: "text/event-stream",
        ...(request.afterSeq > 0 ? { "last-event-id": String(request.afterSeq) } : {}),
      },
      cache: "no-store",
      signal: controller.signal,
    });
    if (!response.ok) throw refusalFrom(response, await response.text());
    if (response.body === null || !/^text\/event-stream\b/i.test(response.headers.get("content-type") ?? "")) {
      throw new ToolRunnerError("answer_invalid", "The answer is no event stream: is this the address of a ToolRunner broker?");
    }
    const arrived: CallEvent[] = [];
    const parser = createParser({
      onEvent: ({ data }) => {
        const event = eventIn(data);
        if (event !== undefined) arrived.push(event);
      },
    });
    const decoder = new TextDecoder();
    const reader = response.body.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      heard();
      if (done) return;
      parser.feed(decoder.decode(value, { stream: true }));
      // While the reader of the iteration is at work nobody listens, so silence means nothing.
      clearTimeout(watchdog);
      for (const event of arrived.splice(0)) yield event;
      heard();
    }
  } catch (error) {
    if (signal?.aborted) throw abortedError(signal);
    if (error instanceof ToolRunnerError) throw error;
    const reason = silent ? `silence for ${request.silenceMs} ms` : reasonOf(error);
    throw new ToolRunnerError("unreachable", `The event stream broke (${reason}).`, { cause: error });
  } finally {
    clearTimeout(watchdog);
    signal?.removeEventListener("abort", onAbort);
    controller.abort();
  }
}

/** Undefined for an event that is none of ours: clients ignore what they do not know. */
function eventIn(data: string): CallEvent | undefined {
  let event: unknown;
  try {
    event = JSON.parse(data);
  } catch {
    return undefined;
  }
  if (typeof event !== "object" || event === null || !("seq" in event) || typeof event.seq !== "number") return undefined;
  return event as CallEvent;
}
