/**
 * The one stream over which a client creates its calls.
 *
 * Opened with the first call, and ended when nothing has been under way for a while, so that it keeps no process alive.
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
  resolve(call: Call): void;
  reject(error: ToolRunnerError): void;
}

/** A stream and what is under way on it. */
interface Line {
  readonly stream: Stream;
  readonly pending: Map<number, Pending>;
}

/** Makes it over streams that `open` opens. */
export function createCallStream(open: () => Stream, address: string): CreateStream {
  let line: Line | undefined;
  let number = 0;
  let idle: ReturnType<typeof setTimeout> | undefined;

  function lineNow(): Line {
    clearTimeout(idle);
    if (line !== undefined) return line;
    const opened: Line = { stream: open(), pending: new Map() };
    line = opened;
    const { stream, pending } = opened;
    let failure: ToolRunnerError | undefined;
    const over = (): void => {
      if (line === opened) line = undefined;
      const error = failure ?? new ToolRunnerError("unreachable", `${address} ended the stream.`);
      for (const waiting of [...pending.values()]) waiting.reject(error);
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

  function rest(used: Line): void {
    if (used.pending.size > 0 || line !== used) return;
    clearTimeout(idle);
    // The stream itself keeps the process alive until then.
    idle = setTimeout(() => {
      if (line !== used || used.pending.size > 0) return;
      line = undefined;
      used.stream.end();
    }, IDLE_MS);
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
        const settle = (finish: () => void): void => {
          if (!used.pending.delete(mine)) return;
          clearTimeout(timer);
          signal?.removeEventListener("abort", onAbort);
          finish();
          rest(used);
        };
        const onAbort = (): void => settle(() => signal !== undefined && reject(abortedError(signal)));
        const timer = setTimeout(() => {
          settle(() => reject(new ToolRunnerError("unreachable", `No answer from ${address} within ${timeoutMs} ms.`)));
        }, timeoutMs);
        used.pending.set(mine, { resolve: (call) => settle(() => resolve(call)), reject: (error) => settle(() => reject(error)) });
        signal?.addEventListener("abort", onAbort, { once: true });
        used.stream.write({ number: mine, call: request });
      });
    },
    close() {
      clearTimeout(idle);
      const last = line;
      line = undefined;
      last?.stream.end();
    },
  };
}
