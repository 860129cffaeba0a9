/** `npm run bench`: the benchmark table, by the package `bench`. What follows the job's name is handed on to it. */
import { join } from "node:path";
import { ensureNatsServer } from "./ensure-nats-server.mjs";
import { ROOT, run, say } from "./set-up.mjs";

/** Resolves with the exit code. Without a nats-server the benchmark says that it leaves JetStream out. */
export async function bench(args) {
  const env = {};
  for (const line of ["2.9", "2.10"]) {
    try {
      env[`TOOLRUNNER_NATS_SERVER_${line.replace(".", "_")}`] = await ensureNatsServer(line);
    } catch (cause) {
      say(`nats-server ${line} could not be had: ${cause.message}`);
    }
  }
  return run(process.execPath, [join(ROOT, "bench", "dist", "main.js"), ...args], { env });
}
