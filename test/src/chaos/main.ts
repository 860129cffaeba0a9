/** `npm run chaos`: exit code 0 when nothing was violated, 1 when something was or the run failed, 2 for wrong usage. */
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { ensureNatsServer } from "../../../scripts/ensure-nats-server.mjs";
import { PlanError } from "./faults.js";
import { networkSpace, runInOwnSpace } from "./network-space.js";
import { type ChaosOptions, parseOptions, USAGE, UsageError } from "./options.js";
import { isClean, printReport } from "./report.js";
import { runChaos } from "./run-chaos.js";

const say = (line: string): void => void process.stdout.write(`${line}\n`);

async function main(args: readonly string[]): Promise<number> {
  let options: ChaosOptions;
  try {
    options = parseOptions(args);
  } catch (cause) {
    if (!(cause instanceof UsageError)) throw cause;
    process.stderr.write(`${cause.message}\n\n${USAGE}\n`);
    return 2;
  }
  const space = networkSpace();
  if (space.kind === "possible") {
    const binary = await ensureNatsServer("2.10");
    return runInOwnSpace([fileURLToPath(import.meta.url), ...args], { TOOLRUNNER_NATS_SERVER_2_10: binary });
  }
  say(
    space.kind === "own"
      ? "network: a namespace of its own, in which packets are dropped below TCP"
      : `network: this machine's, so that "drop" is a link that holds back (${space.why})`,
  );
  try {
    const report = await runChaos(options, say, space.kind === "own");
    for (const line of printReport(report)) say(line);
    if (options.jsonFile !== undefined) writeFileSync(options.jsonFile, `${JSON.stringify(report, null, 2)}\n`);
    return isClean(report) ? 0 : 1;
  } catch (cause) {
    if (!(cause instanceof PlanError)) throw cause;
    process.stderr.write(`${cause.message}\n`);
    return 2;
  }
}

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  // What it started ends with it, by the kernel; folders of NATS servers are removed on exit.
  process.once(signal, () => process.exit(1));
}
process.exit(await main(process.argv.slice(2)));
