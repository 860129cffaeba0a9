/** Requests over one line that answers in any order: what is sent comes back with the same number. */
import { frameOf, numberOf, payloadOf } from "./frame.js";

const UINT32 = 2 ** 32;

export interface Exchange {
  ask(payload: Uint8Array): Promise<Buffer>;
  received(frame: Buffer): void;
}

export function createExchange(send: (frame: Buffer) => void): Exchange {
  const pending = new Map<number, (payload: Buffer) => void>();
  let last = 0;
  return {
    ask(payload) {
      last = (last + 1) % UINT32;
      const number = last;
      return new Promise((resolve) => {
        pending.set(number, resolve);
        send(frameOf(number, payload));
      });
    },
    received(frame) {
      const number = numberOf(frame);
      const resolve = pending.get(number);
      if (resolve === undefined) throw new Error(`message ${number} was answered twice, or never asked`);
      pending.delete(number);
      resolve(payloadOf(frame));
    },
  };
}
