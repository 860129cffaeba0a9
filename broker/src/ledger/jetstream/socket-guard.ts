/**
 * Keeps a failing write on a dead connection from ending the process.
 *
 * When a connection closes, the client (3.4) removes all listeners from its socket. If the peer ended the socket a moment before, a
 * write that was under way still fails, and the socket tells of that by an `error` event that nobody hears: an uncaught exception.
 * The write itself needs no attention: what was not acknowledged is sent again over the next connection.
 */
import { Socket } from "node:net";
import type { NatsConnection } from "@nats-io/nats-core";

const guarded = new WeakSet<Socket>();

/** Guards the socket that `connection` uses now. To be called again after each reconnect. Without effect on other transports. */
export function guardSocket(connection: NatsConnection): void {
  const { protocol } = connection as unknown as { protocol?: { transport?: { socket?: unknown } } };
  const socket = protocol?.transport?.socket;
  if (!(socket instanceof Socket) || guarded.has(socket)) return;
  guarded.add(socket);
  const removeAllListeners = socket.removeAllListeners.bind(socket);
  socket.removeAllListeners = (event) => {
    removeAllListeners(event);
    if (event === undefined || event === "error") socket.on("error", () => undefined);
    return socket;
  };
}
