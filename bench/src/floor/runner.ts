/** The floor's runner: sends back what it gets. */
import { once } from "node:events";
import { WebSocket } from "ws";
import { processUsage } from "../processes/process-usage.js";
import type { RunnerRole } from "../processes/roles.js";
import { serveRole } from "../processes/serve-role.js";
import { openFloorStream } from "./client.js";

let stop: () => void = () => undefined;

serveRole<RunnerRole>({
  ...processUsage(),
  async start({ transport, places }) {
    if (transport === "grpc") {
      const stream = openFloorStream(places.grpc, "run");
      stream.on("data", (frame: Buffer) => stream.write(frame));
      // The broker's handler runs before it says so.
      await once(stream, "metadata");
      stop = () => stream.end();
    } else {
      const socket = new WebSocket(places.ws, { perMessageDeflate: false });
      socket.on("message", (frame: Buffer) => socket.send(frame));
      await once(socket, "open");
      stop = () => socket.terminate();
    }
  },
  async stop() {
    stop();
  },
});
