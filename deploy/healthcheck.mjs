/**
 * The health check of containers: `node healthcheck.mjs [PATH]`. Exit code 0 for healthy, 1 for not, with one line that says why.
 *
 * PATH that begins with `/` is asked of the broker in this container: `/healthz` (the default) or `/readyz`. With `file:` before it,
 * as in `file:/tmp/ready`, it is the ready file of a runner, which is there while the runner takes calls.
 * `TOOLRUNNER_HEALTH_PORT` (7070) is where the broker listens.
 */
import { existsSync } from "node:fs";

const TIMEOUT_MS = 3_500;
const [target = "/healthz"] = process.argv.slice(2);

process.exitCode = await check().then(
  (problem) => {
    if (problem === undefined) return 0;
    process.stdout.write(`${problem}\n`);
    return 1;
  },
  (cause) => {
    process.stdout.write(`${cause?.cause?.message || cause?.message || cause}\n`);
    return 1;
  },
);

/** Resolves with what is wrong, if anything is. */
async function check() {
  if (target.startsWith("file:")) {
    const file = target.slice("file:".length);
    return existsSync(file) ? undefined : `not ready: there is no ${file}`;
  }
  const port = process.env.TOOLRUNNER_HEALTH_PORT || "7070";
  const answer = await fetch(`http://127.0.0.1:${port}${target}`, { signal: AbortSignal.timeout(TIMEOUT_MS) });
  const text = await answer.text();
  return answer.ok ? undefined : `${answer.status} ${text.slice(0, 500)}`;
}
