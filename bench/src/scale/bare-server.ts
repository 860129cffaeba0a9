/** The floor of an idle session: a `ws` server that pings its connections, each at its own time, and knows nothing of them. */
import type { AddressInfo } from "node:net";
import { type WebSocket, WebSocketServer } from "ws";
import { brokerUsage } from "../processes/broker-usage.js";
import { serveRole } from "../processes/serve-role.js";
import type { BareServerRole } from "./roles.js";

/** As fine as the broker's own timer. */
const TICK_MS = 20;

let stop: () => void = () => undefined;

serveRole<BareServerRole>({
  ...brokerUsage(),
  start({ pingIntervalMs }) {
    const server = new WebSocketServer({ host: "127.0.0.1", port: 0, perMessageDeflate: false, clientTracking: false, backlog: 4_096 });
    const ticks = Math.max(1, Math.round(pingIntervalMs / TICK_MS));
    const due: WebSocket[][] = Array.from({ length: ticks }, () => []);
    let tick = 0;
    let connections = 0;
    server.on("connection", (socket) => {
      due[connections % ticks]?.push(socket);
      connections += 1;
      socket.on("error", () => undefined);
    });
    const timer = setInterval(() => {
      for (const socket of due[tick] ?? []) socket.ping();
      tick = (tick + 1) % ticks;
    }, TICK_MS);
    stop = () => {
      clearInterval(timer);
      server.close();
    };
    return new Promise((resolve) => {
      server.on("listening", () => resolve(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`));
    });
  },
  stop: () => stop(),
});
