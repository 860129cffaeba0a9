/** A loopback proxy whose connections a test can cut, as a pulled cable or a dropped Wi-Fi would. */
import { type AddressInfo, connect, createServer, type Socket } from "node:net";

export interface TcpProxy {
  readonly port: number;
  /** Destroys all present connections; new ones are taken. */
  cut(): void;
  /** While held, new connections are destroyed at once. */
  hold(held: boolean): void;
  close(): Promise<void>;
}

/** @param target port on 127.0.0.1 that connections are carried to. */
export async function startTcpProxy(target: number): Promise<TcpProxy> {
  const sockets = new Set<Socket>();
  let held = false;
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
        if (!other.write(chunk)) {
          socket.pause();
          other.once("drain", () => socket.resume());
        }
      });
      socket.on("end", () => other.end());
      socket.on("error", () => other.destroy());
      socket.on("close", () => {
        sockets.delete(socket);
        other.destroy();
      });
    }
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", resolve);
  });
  function cut(): void {
    for (const socket of sockets) {
      socket.destroy();
    }
  }
  return {
    port: (server.address() as AddressInfo).port,
    cut,
    hold(next) {
      held = next;
    },
    close() {
      cut();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}
