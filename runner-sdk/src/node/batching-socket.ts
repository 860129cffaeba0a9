/**
 * The runner's end of a WebSocket: `ws`'s own, with one write for what is sent in one run of tasks.
 *
 * Invariant: what was sent leaves before the event loop turns, so nothing that a handler waits for holds it back.
 */
import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { type ClientOptions, WebSocket } from "ws";

/** `started` and the receipt of a quick handler, or the receipts of many calls, go out together: a write costs more than a frame. */
export class BatchingSocket extends WebSocket {
  #connection: Duplex | undefined;
  #corked = false;

  constructor(address: URL, protocols: string[], options: ClientOptions) {
    super(address, protocols, options);
    this.once("upgrade", (response: IncomingMessage) => {
      this.#connection = response.socket;
    });
  }

  override send(...sent: [data: unknown, ...more: unknown[]]): void {
    const connection = this.#connection;
    if (connection !== undefined && !this.#corked) {
      this.#corked = true;
      connection.cork();
      // After the promises that are settled by now, and before the loop turns.
      process.nextTick(() => {
        this.#corked = false;
        connection.uncork();
      });
    }
    Reflect.apply(super.send, this, sent);
  }
}
