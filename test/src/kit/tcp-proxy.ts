/** A loopback proxy whose connections a test can cut, as a pulled cable or a dropped Wi-Fi would, or freeze, so that they look open and are dead. */
import { type AddressInfo, connect, createServer, type Socket } from "node:net";

export interface TcpProxy {
  readonly port: number;
  /** Destroys all present connections; new ones are taken. */
  cut(): void;
  /** Cuts once so many more bytes came from those who connected. */
  cutAfter(bytes: number): Promise<void>;
  /** While held, new connections are destroyed at once. */
  hold(held: boolean): void;
  /** While frozen, connections stay open, new ones are taken, and nothing gets through either way; what was sent meanwhile does when it thaws. */
  freeze(frozen: boolean): void;
  /** Ends a freeze for new connections only: those that are frozen stay so for good. */
  renew(): void;
  close(): Promise<void>;
}

/** @param target port on 127.0.0.1 that connections are carried to. */
export async function startTcpProxy(target: number): Promise<TcpProxy> {
  const sockets = new Set<Socket>();
  /** Not read any more, until a thaw. */
  const stuck = new Set<Socket>();
  let frozen = false;
  let held = false;
  function stick(socket: Socket): void {
    stuck.add(socket);
    socket.pause();
  }
  let carried = 0;
  let pending: { readonly at: number; readonly done: () => void } | undefined;
  const server = createServer((near) => {
    if (held) {
      near.destroy();
      return;
    }
    const far = connect(target, "127.0.0.1");
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(socket);
      socket.setNoDelay(true);
      socket.on("data", (chunk) => {
        if (socket === near) count(chunk.length);
        if (!other.write(chunk)) {
          socket.pause();
          other.once("drain", () => {
            if (!stuck.has(socket)) {
              socket.resume();
            }
          });
        }
      });
      socket.on("end", () => other.end());
      socket.on("error", () => other.destroy());
      socket.on("close", () => {
        sockets.delete(socket);
        stuck.delete(socket);
        other.destroy();
      });
      if (frozen) {
        stick(socket);
      }
    }
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", resolve);
  });
  function count(bytes: number): void {
    carried += bytes;
    if (pending === undefined || carried < pending.at) return;
    pending.done();
    pending = undefined;
    cut();
  }
  function cut(): void {
    for (const socket of sockets) {
      socket.destroy();
    }
  }
  return {
    port: (server.address() as AddressInfo).port,
    cut,
    cutAfter: (bytes) =>
      new Promise((done) => {
        pending = { at: carried + bytes, done };
      }),
    hold(next) {
      held = next;
    },
    freeze(next) {
      frozen = next;
      if (next) {
        sockets.forEach(stick);
        return;
      }
      for (const socket of stuck) {
        socket.resume();
      }
      stuck.clear();
    },
    renew() {
      frozen = false;
    },
    close() {
      cut();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}
