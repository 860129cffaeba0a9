/** `npm run conformance`: the conformance suite against a runner or a broker. What follows the job's name is handed on to it. */
import { join } from "node:path";
import { ROOT, run } from "./set-up.mjs";

/** Resolves with the exit code: 0 all passed, 1 a case failed, 2 wrong usage. */
export function conformance(args) {
  return run(process.execPath, [join(ROOT, "test", "dist", "conformance", "main.js"), ...args], { cwd: process.cwd() });
}
