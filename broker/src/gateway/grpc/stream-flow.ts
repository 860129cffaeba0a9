/** Back-pressure of streams that the broker writes. */

import type { EventEmitter } from "node:events";
import type { WaitSignal } from "../../wire/operations.js";

/** Durations of a stream. */
export interface StreamTimes {
  /** How long a reader may take nothing. */
  readonly stallMs: number;
}

/** Waits until `stream` takes more. False when it took nothing for `stallMs`, or `signal` aborted. */
export function drained(stream: EventEmitter, signal: WaitSignal, stallMs: number): Promise<boolean> {
  return new Promise((resolve) => {
    const settle = (result: boolean) => () => {
      clearTimeout(timer);
      stream.off("drain", onDrain);
      signal.removeEventListener("abort", onOver);
      resolve(result);
    };
    const onDrain = settle(true);
    const onOver = settle(false);
    const timer = setTimeout(onOver, stallMs);
    stream.once("drain", onDrain);
    signal.addEventListener("abort", onOver, { once: true });
    if (signal.aborted) onOver();
  });
}
