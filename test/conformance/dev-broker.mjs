// A subject of the broker suite: `toolrunner dev` in this process, told where to keep its data. Its own line "ready" is the one that the
// suite wants, and its toolset is made of what the suite's runner tells it.
import { createInterface } from "node:readline";

const lines = createInterface({ input: process.stdin });
lines.once("line", async (line) => {
  const { data } = JSON.parse(line);
  process.argv.splice(2, process.argv.length, "dev", "--json", "--port", "0", "--grpc-port", "0", "--data", data);
  await import("../../cli/bin/toolrunner.js");
});
// Nobody is left to tell it what to do.
lines.once("close", () => process.exit());
