/**
 * The one stream over which a client creates its calls.
 *
 * Opened with the first call, and ended when nothing has been under way for a while, so that it keeps no process alive.
 * One timer watches over all that is under way and over the rest after it: none is set and taken back for each call.
 * Invariant: each creation is answered once; when the stream ends, all that are under way are `unreachable`, or refused
 * with the stream: their senders repeat them with the same key over a new one.
 */

import type { ClientDuplexStream, StatusObject } from "@grpc/grpc-js";
import type { Call, CreateCallRequest, CreateCallsRequest, CreateCallsResponse } from "@toolrunner/proto";
import { abortedError, ToolRunnerError } from "../errors.js";
import type { SendOptions } from "../transport.js";
import { refusalFrom, refusalIn } from "./grpc-refusal.js";

type Stream = ClientDuplexStream<CreateCallsRequest, CreateCallsResponse>;

/** The broker ends a stream at a larger message, and with it all that is under way: it is refused here instead. */
const MESSAGE_BYTES_MAX = 8_388_608 - 65_536;

/** An idle stream is ended after this. */
const IDLE_MS = 1_000;
const UINT32 = 2 ** 32;

/** Creates calls over one stream. */
export interface CreateStream {
  create(request: CreateCallRequest, options: SendOptions): Promise<Call>;
  close(): void;
}

interface Pending {
  /** Monotonic milliseconds. */
  readonly dueMs: number;
  resolve(call: Call): void;
  reject(error: ToolRunnerError): void;
  late(): void;
}

/** A stream and what is under way on it. */
interface Line {
  readonly stream: Stream;
  readonly pending: Map<number, Pending>;
  /** When something was last under way, monotonic milliseconds. */
  usedAtMs: number;
  timer: ReturnType<typeof setTimeout> | undefined;
  timerDueMs: number;
}

/** Makes it over streams that `open` opens. */
export function createCallStream(open: () => Stream, address: string): CreateStream {
  let line: Line | undefined;
  let number = 0;

  function lineNow(): Line {
    if (line !== undefined) return line;
    const opened: Line = { stream: open(), pending: new Map(), usedAtMs: 0, timer: undefined, timerDueMs: Number.POSITIVE_INFINITY };
    line = opened;
    const { stream, pending } = opened;
    let failure: ToolRunnerError | undefined;
    const over = (): void => {
      if (line === opened) line = undefined;
      const error = failure ?? new ToolRunnerError("unreachable", `${address} ended the stream.`);
      for (const waiting of [...pending.values()]) waiting.reject(error);
      clearTimeout(opened.timer);
    };
    stream.on("data", ({ number: answered, answer }: CreateCallsResponse) => {
      const waiting = pending.get(answered);
      if (waiting === undefined) return;
      if (answer === undefined)
        waiting.reject(new ToolRunnerError("answer_invalid", "The broker's answer holds neither a call nor an error."));
      else if (answer.$case === "call") waiting.resolve(answer.value);
      else waiting.reject(refusalIn(answer.value));
    });
    stream.on("error", (error: Error & Partial<StatusObject>) => {
      failure =
        error.code === undefined || error.details === undefined
          ? new ToolRunnerError("unreachable", `The stream to ${address} broke (${error.message}).`, { cause: error })
          : refusalFrom(
              { code: error.code, details: error.details, ...(error.metadata === undefined ? {} : { metadata: error.metadata }) },
              address,
            );
      over();
    });
    stream.on("end", over);
    stream.on("close", over);
    return opened;
  }

  /** The stream itself keeps the process alive until it has rested. */
  function rest(used: Line): void {
    if (used.pending.size > 0) return;
    if (line !== used) return clearTimeout(used.timer);
    used.usedAtMs = performance.now();
    watch(used, used.usedAtMs + IDLE_MS);
  }

  /** Looks at the line at that time or before. */
  function watch(used: Line, dueMs: number): void {
    if (used.timerDueMs <= dueMs) return;
    clearTimeout(used.timer);
    used.timerDueMs = dueMs;
    used.timer = setTimeout(() => look(used), dueMs - performance.now());
  }

  function look(used: Line): void {
    used.timerDueMs = Number.POSITIVE_INFINITY;
    const now = performance.now();
    const waiting = [...used.pending.values()];
    for (const { dueMs, late } of waiting) if (dueMs <= now) late();
    let nextMs = Number.POSITIVE_INFINITY;
    for (const { dueMs } of used.pending.values()) nextMs = Math.min(nextMs, dueMs);
    if (nextMs < Number.POSITIVE_INFINITY) return watch(used, nextMs);
    if (line !== used) return;
    if (now < used.usedAtMs + IDLE_MS) return watch(used, used.usedAtMs + IDLE_MS);
    line = undefined;
    used.stream.end();
  }

  return {
    create(request, { signal, timeoutMs }) {
      return new Promise((resolve, reject) => {
        if (signal?.aborted) {
          reject(abortedError(signal));
          return;
        }
        const bytes = Buffer.byteLength(request.argumentsJson);
        if (bytes > MESSAGE_BYTES_MAX) {
          const message = `The arguments are ${bytes} bytes, over the limit of ${MESSAGE_BYTES_MAX} bytes for a message: send less.`;
          reject(new ToolRunnerError("body_too_large", message, { type: "too_large_error", status: 413 }));
          return;
        }
        const used = lineNow();
        number = (number + 1) % UINT32;
        const mine = number;
        const settle = (): boolean => {
          if (!used.pending.delete(mine)) return false;
          signal?.removeEventListener("abort", onAbort);
          rest(used);
          return true;
        };
        const onAbort = (): void => {
          if (settle() && signal !== undefined) reject(abortedError(signal));
        };
        const dueMs = performance.now() + timeoutMs;
        used.pending.set(mine, {
          dueMs,
          resolve: (call) => void (settle() && resolve(call)),
          reject: (error) => void (settle() && reject(error)),
          late: () => void (settle() && reject(new ToolRunnerError("unreachable", `No answer from ${address} within ${timeoutMs} ms.`))),
        });
        watch(used, dueMs);
        signal?.addEventListener("abort", onAbort, { once: true });
        used.stream.write({ number: mine, call: request });
      });
    },
    close() {
      const last = line;
      line = undefined;
      if (last?.pending.size === 0) clearTimeout(last.timer);
      last?.stream.end();
    },
  };
}
