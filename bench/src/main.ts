/** `npm run bench`: measures the product beside its floor and prints both. */
import { writeFile } from "node:fs/promises";
import { availableParallelism, loadavg } from "node:os";
import type { Cell } from "./figures.js";
import { measureGroup } from "./measure.js";
import { natsBinary } from "./nats-process.js";
import { type BenchOptions, parseOptions, USAGE, UsageError } from "./options.js";
import { profileBroker } from "./profile/profile-broker.js";
import { report, reportJson } from "./report.js";

const say = (text: string): void => void process.stdout.write(`${text}\n`);

async function bench(given: BenchOptions): Promise<void> {
  const natsServer = natsBinary(given.natsLine);
  const options = { ...given, natsServer };
  const begun = performance.now();
  const cells: Cell[] = [];
  for (const ledger of options.ledgers) {
    if (ledger === "jetstream" && natsServer === undefined) {
      say(`JetStream is left out: no nats-server ${given.natsLine} was found (start this with "npm run bench", which fetches one).`);
      continue;
    }
    for (const runner of options.runners) {
      say(`▸ ${ledger}, ${runner} runner`);
      if (options.profileDir === undefined) cells.push(...(await measureGroup(ledger, runner, options)));
      else say(await profileBroker(ledger, runner, { ...options, profileDir: options.profileDir }));
    }
  }
  if (cells.length === 0) return;
  const seconds = Math.round((performance.now() - begun) / 1_000);
  const machine = `${availableParallelism()} cores, load ${loadavg()[0]?.toFixed(1)}, Node ${process.versions.node}, nats-server ${given.natsLine}, ${given.rounds} rounds, ${seconds} s`;
  say(`\n${report(cells)}\n${machine}`);
  if (given.jsonFile === undefined) return;
  await writeFile(given.jsonFile, reportJson(cells, { machine, options: given }));
  say(`All figures: ${given.jsonFile}`);
}

// Stores and servers go with the process, and the other processes end when it is gone.
process.once("SIGINT", () => process.exit(130));
process.once("SIGTERM", () => process.exit(143));

try {
  await bench(parseOptions(process.argv.slice(2)));
} catch (error) {
  if (!(error instanceof UsageError)) throw error;
  process.stderr.write(`${error.message}\n\n${USAGE}\n`);
  process.exitCode = 2;
}
