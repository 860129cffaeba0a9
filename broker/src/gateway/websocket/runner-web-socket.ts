/** The server's end of a runner WebSocket: `ws`'s own with the close codes of the protocol and bounded answers to pings. */

import type { Duplex } from "node:stream";
import { WebSocket } from "ws";

/** What `ws` closes with by itself, and what that is in the close table. */
const OWN_CODES: Readonly<Record<number, number>> = {
  1002: 4400, // a frame breaks RFC 6455
  1007: 4400, // text that is not UTF-8
  1008: 4429, // too many fragments of one message
  1009: 4413, // a message over the limit
};

/** Above this, bytes, a client that pings without reading the answers gets none. */
const PONG_BUFFER_BYTES_MAX = 65_536;

/** For `WebSocketServer`'s option `WebSocket`. */
export class RunnerWebSocket extends WebSocket {
  #connection: Duplex | undefined;
  #corked = false;

  /** Sends the frames of one turn of the event loop as one write: a write that wakes the peer up costs more than a frame. */
  batchOn(connection: Duplex): void {
    this.#connection = connection;
  }

  override send(...sent: [data: unknown, ...more: unknown[]]): void {
    const connection = this.#connection;
    if (connection !== undefined && !this.#corked) {
      this.#corked = true;
      connection.cork();
      setImmediate(() => {
        this.#corked = false;
        connection.uncork();
      });
    }
    Reflect.apply(super.send, this, sent);
  }

  override close(code?: number, data?: string | Buffer): void {
    super.close(code === undefined ? code : (OWN_CODES[code] ?? code), data);
  }
}

/** Instead of `ws`'s own answers (`autoPong: false`), which would pile up for a client that pings and does not read. */
export function answerPings(socket: WebSocket): void {
  socket.on("ping", (data: Buffer) => {
    if (socket.readyState === WebSocket.OPEN && socket.bufferedAmount <= PONG_BUFFER_BYTES_MAX) socket.pong(data);
  });
}
