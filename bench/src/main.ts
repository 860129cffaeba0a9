/** `npm run bench`: measures the product beside its floor and prints both. */
import { writeFile } from "node:fs/promises";
import { availableParallelism, loadavg } from "node:os";
import { bundleForPage, bundleSizeLines } from "./bundle-size.js";
import type { Cell } from "./figures.js";
import { measureGroup } from "./measure.js";
import { natsBinary } from "./nats-process.js";
import { type BenchOptions, parseOptions, USAGE, UsageError } from "./options.js";
import { profileProduct } from "./profile/profile-product.js";
import { report, reportJson } from "./report.js";
import { measureScale } from "./scale/scale.js";
import { scaleReport, scaleVerdicts } from "./scale/scale-report.js";

const say = (text: string): void => void process.stdout.write(`${text}\n`);

async function bench(given: BenchOptions): Promise<void> {
  const natsServer = natsBinary(given.natsLine);
  const options = { ...given, natsServer };
  const begun = performance.now();
  const ledgers = options.ledgers.filter((ledger) => {
    if (ledger === "sqlite" || natsServer !== undefined) return true;
    say(`JetStream is left out: no nats-server ${given.natsLine} was found (start this with "npm run bench", which fetches one).`);
    return false;
  });
  const facts = (): { readonly machine: string; readonly options: BenchOptions } => {
    const seconds = Math.round((performance.now() - begun) / 1_000);
    const rounds = given.scale?.rounds ?? given.rounds;
    return {
      machine: `${availableParallelism()} cores, load ${loadavg()[0]?.toFixed(1)}, Node ${process.versions.node}, nats-server ${given.natsLine}, ${rounds} rounds, ${seconds} s`,
      options: given,
    };
  };
  if (options.scale !== undefined) {
    if (ledgers.length === 0) return;
    const found = await measureScale(ledgers, { ...options.scale, natsServer, index: options.index, say });
    say(`\n${scaleReport(found)}\n\n${facts().machine}`);
    await keep(given.jsonFile, `${JSON.stringify({ ...facts(), ...found, verdicts: scaleVerdicts(found) }, undefined, 2)}\n`);
    return;
  }
  const cells: Cell[] = [];
  for (const ledger of ledgers) {
    for (const runner of options.runners) {
      say(`▸ ${ledger}, ${runner} runner`);
      if (options.profileDir === undefined) cells.push(...(await measureGroup(ledger, runner, options)));
      else say(await profileProduct(ledger, runner, { ...options, profileDir: options.profileDir }));
    }
  }
  if (cells.length === 0) return;
  say(`\n${report(cells)}\n${facts().machine}\n`);
  for (const line of bundleSizeLines(await bundleForPage())) say(line);
  await keep(given.jsonFile, reportJson(cells, facts()));
}

async function keep(file: string | undefined, json: string): Promise<void> {
  if (file === undefined) return;
  await writeFile(file, json);
  say(`All figures: ${file}`);
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
