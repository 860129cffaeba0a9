/** `npm run chaos`: real processes under faults, then a check of what they did. What follows the job's name is handed on to it. */
import { join } from "node:path";
import { ensureNatsServer } from "./ensure-nats-server.mjs";
import { ROOT, run } from "./set-up.mjs";

/** Resolves with the exit code: 0 nothing was violated, 1 something was, 2 wrong usage. */
export async function chaos(args) {
  const env = { TOOLRUNNER_NATS_SERVER_2_10: await ensureNatsServer("2.10") };
  return run(process.execPath, [join(ROOT, "test", "dist", "chaos", "main.js"), ...args], { env });
}
