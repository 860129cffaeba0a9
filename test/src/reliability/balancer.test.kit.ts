/** One address for several brokers, as a load balancer gives: new connections go in turn to those whose `/readyz` says so. */
import { type AddressInfo, connect, createServer, type Socket } from "node:net";

const PROBE_MS = 100;

export interface Balancer {
  /** `http://127.0.0.1:port` */
  readonly http: string;
  /** `ws://127.0.0.1:port/v1/runner` */
  readonly ws: string;
  /** Carries connections to this broker from when it is ready until it is removed. */
  add(http: string): void;
  remove(http: string): void;
  close(): Promise<void>;
}

export async function startBalancer(): Promise<Balancer> {
  const ready = new Map<string, boolean>();
  const sockets = new Set<Socket>();
  let turn = 0;
  const probe = setInterval(() => {
    for (const http of ready.keys()) {
      fetch(`${http}/readyz`, { signal: AbortSignal.timeout(1_000) }).then(
        (answer) => ready.has(http) && ready.set(http, answer.status === 200),
        () => ready.has(http) && ready.set(http, false),
      );
    }
  }, PROBE_MS);

  function next(): string | undefined {
    const up = [...ready].flatMap(([http, isReady]) => (isReady ? [http] : []));
    turn += 1;
    return up[turn % up.length];
  }

  const server = createServer({ allowHalfOpen: true }, (near) => {
    const target = next();
    near.on("error", () => near.destroy());
    if (target === undefined) return void near.destroy();
    const far = connect({ port: Number(new URL(target).port), host: "127.0.0.1", allowHalfOpen: true });
    far.on("error", () => near.destroy());
    for (const socket of [near, far]) {
      sockets.add(socket);
      socket.setNoDelay(true);
      socket.on("close", () => {
        sockets.delete(socket);
        near.destroy();
        far.destroy();
      });
    }
    near.pipe(far);
    far.pipe(near);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    http: `http://127.0.0.1:${port}`,
    ws: `ws://127.0.0.1:${port}/v1/runner`,
    add: (http) => void ready.set(http, false),
    remove: (http) => void ready.delete(http),
    close() {
      clearInterval(probe);
      for (const socket of sockets) socket.destroy();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}
