/** `npm run conformance`: the suites, for authors of runners and brokers. Exit code 0 all passed, 1 a case failed, 2 wrong usage. */
import { parseArgs } from "node:util";
import { BROKER_CASES } from "./broker-cases.js";
import { runBrokerSuite } from "./broker-suite.js";
import type { CaseOutcome } from "./run-cases.js";
import { RUNNER_CASES, runRunnerSuite } from "./runner-suite.js";
import type { Wire } from "./scripted-broker.js";

const WIRES: readonly Wire[] = ["websocket-json", "websocket-binary", "grpc"];
const USAGE = `npm run conformance -- runner [--wire ${WIRES.join("|")}] [--only id,id] [--at-once 6] [--json] -- COMMAND [ARGS]
npm run conformance -- broker [--wire websocket-json|websocket-binary] [--only id,id] [--at-once 4] [--json] -- COMMAND [ARGS]
The command speaks lines of JSON on stdin and stdout: docs/conformance.md.`;

class UsageError extends Error {}

async function main(argv: readonly string[]): Promise<number> {
  const split = argv.indexOf("--");
  const [program, ...args] = split === -1 ? [] : argv.slice(split + 1);
  const { values, positionals } = parseArgs({
    args: [...(split === -1 ? argv : argv.slice(0, split))],
    allowPositionals: true,
    options: {
      wire: { type: "string", default: "websocket-json" },
      only: { type: "string" },
      "at-once": { type: "string" },
      json: { type: "boolean", default: false },
    },
  });
  const [side, ...more] = positionals;
  const wire = WIRES.find((one) => one === values.wire);
  if ((side !== "runner" && side !== "broker") || more.length > 0) throw new UsageError("say runner or broker, once");
  if (program === undefined) throw new UsageError("no command after --: it starts what is to be tested");
  if (wire === undefined || (side === "broker" && wire === "grpc")) throw new UsageError(`there is no --wire ${values.wire} for a ${side}`);
  const only = values.only?.split(",");
  const known = (side === "runner" ? RUNNER_CASES : BROKER_CASES).map(({ id }) => id);
  const unknown = only?.find((id) => !known.includes(id));
  if (unknown !== undefined) throw new UsageError(`there is no case ${unknown}; there are ${known.join(", ")}`);
  const atOnce = values["at-once"] === undefined ? undefined : Number(values["at-once"]);
  if (atOnce !== undefined && !(Number.isInteger(atOnce) && atOnce >= 1 && atOnce <= 64)) throw new UsageError("--at-once is 1 to 64");

  const options = {
    ...(only === undefined ? {} : { only }),
    ...(atOnce === undefined ? {} : { atOnce }),
    ...(values.json ? {} : { onOutcome: print }),
  };
  const command = { program, args };
  const outcomes =
    side === "runner"
      ? await runRunnerSuite(command, wire, options)
      : await runBrokerSuite(command, wire === "websocket-json" ? "json" : "binary", options);
  const count = (outcome: CaseOutcome["outcome"]) => outcomes.filter((one) => one.outcome === outcome).length;
  const summary = { passed: count("passed"), failed: count("failed"), skipped: count("skipped") };
  process.stdout.write(
    values.json
      ? `${JSON.stringify({ side, wire, ...summary, cases: outcomes })}\n`
      : `${summary.passed} passed, ${summary.failed} failed, ${summary.skipped} skipped\n`,
  );
  return summary.failed === 0 ? 0 : 1;
}

function print({ id, what, section, outcome, reason }: CaseOutcome): void {
  const because = reason === undefined ? "" : `\n    ${reason}\n    docs/protocol.md, ${section}`;
  process.stdout.write(`${outcome.padEnd(8)}${id}: ${what}${because}\n`);
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  const isUsage = error instanceof UsageError || (error instanceof Error && "code" in error && String(error.code).startsWith("ERR_PARSE"));
  process.stderr.write(isUsage ? `${error.message}\n${USAGE}\n` : `${error instanceof Error ? error.stack : String(error)}\n`);
  process.exitCode = isUsage ? 2 : 1;
}
