/**
 * `npm test` and `npm run test:long`: every test on this Node, then the port suites on a second one.
 *
 * Invariants: what was skipped is printed with its reason; the last line is `N passed, N failed, N skipped`;
 * the exit code is 0 only when nothing failed and the tests really ran.
 */
import { existsSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { compileSecondSqlite, hasSecondSqlite, SECOND_NODE, secondNode, secondSqliteEnvironment } from "./second-node.mjs";
import { endChild, exited, ROOT, start, timed } from "./set-up.mjs";

const REPORTS = join(ROOT, ".cache", "test-reports");

/** Folders of compiled port suites, which a second Node runs too: what touches native code, workers, files and sockets. */
const PORT_SUITES = [
  "broker/dist/ledger/",
  "broker/dist/sqlite/",
  "broker/dist/bus/",
  "broker/dist/catalog/store/",
  "test/dist/ledger/",
  "test/dist/bus/",
  "test/dist/catalog/",
];

/** Resolves with the exit code. */
export async function test({ long }) {
  const reports = [await runTests("all tests", { long })];
  reports.push(await runPortSuites({ long }));
  return summarize(reports, { long });
}

/** The port suites on the second Node. */
async function runPortSuites({ long }) {
  const title = `port suites on Node ${SECOND_NODE}`;
  let node;
  try {
    node = await secondNode();
  } catch (cause) {
    return skippedWhole(title, cause.message);
  }
  let sqliteReason = `better-sqlite3 is compiled for Node ${SECOND_NODE} by npm run test:long, in a minute`;
  if (long) {
    try {
      await timed(`compiling better-sqlite3 for Node ${SECOND_NODE}`, compileSecondSqlite);
    } catch (cause) {
      sqliteReason = cause.message;
    }
  }
  const sqlite = hasSecondSqlite();
  const report = await runTests(title, {
    long,
    node,
    filters: PORT_SUITES,
    exclude: [...(long ? [] : SLOW_SUITES), ...(sqlite ? [] : ["**/*sqlite*/**", "**/*sqlite*"])],
    more: sqlite ? [] : ["--testNamePattern=^(?!.*[Ss][Qq][Ll]ite)"],
    env: sqlite ? secondSqliteEnvironment() : {},
  });
  if (!sqlite) {
    for (const line of report.skipped) if (/sqlite/i.test(line.name)) line.reason = sqliteReason;
    report.skipped.push({ file: title, name: "suites of SQLite alone", reason: sqliteReason });
  }
  if (!long) {
    const reason = `on Node ${SECOND_NODE}: left to npm run test:long for their time`;
    report.skipped.push({ file: title, name: SLOW_SUITES.join(", "), reason });
  }
  return report;
}

/** Port suites that stop, cut off and restart servers: on the second Node in the long run only. */
const SLOW_SUITES = ["**/*cluster*", "**/*outage*", "**/*fault*", "**/*kill*"];

/** One run of vitest. A run that leaves no report, hangs, or fails without naming a test counts as a failure. */
async function runTests(title, { long, node, filters = [], exclude = [], more = [], env = {} }) {
  const file = join(REPORTS, `${title.replace(/[^a-z0-9]+/gi, "-")}.json`);
  rmSync(file, { force: true });
  const limitMinutes = Number(process.env.TOOLRUNNER_TEST_MINUTES) || (long ? LONG_MINUTES : SHORT_MINUTES);
  const args = [
    "run",
    "--reporter=default",
    "--reporter=./scripts/report.mjs",
    ...exclude.map((pattern) => `--exclude=${pattern}`),
    ...more,
    ...filters,
  ];
  const { code, hung } = await timed(title, () =>
    within(limitMinutes * 60_000, () =>
      start(node ?? process.execPath, [join(ROOT, "node_modules/vitest/vitest.mjs"), ...args], {
        group: true,
        env: { ...env, TOOLRUNNER_TEST_REPORT: file, ...(long ? { TOOLRUNNER_LONG: "1" } : {}) },
      }),
    ),
  );
  const report = existsSync(file)
    ? JSON.parse(readFileSync(file, "utf8"))
    : { passed: 0, failed: [], skipped: [], unhandled: [], running: [] };
  for (const message of report.unhandled) report.failed.push({ file: title, name: "an error outside any test", reason: message });
  if (hung) {
    const reason = `not done after ${limitMinutes} minutes (TOOLRUNNER_TEST_MINUTES gives more)`;
    const running = report.running.length > 0 ? report.running : [title];
    for (const each of running) report.failed.push({ file: each, name: "(the file itself)", reason });
  }
  if (code !== 0 && report.failed.length === 0) report.failed.push({ file: title, name: `vitest ended with exit code ${code}` });
  if (report.passed === 0 && report.failed.length === 0) report.failed.push({ file: title, name: "no test was found" });
  return report;
}

/** A run that takes longer hangs: a loop that never ends cannot be timed out from within its process. */
const SHORT_MINUTES = 10;
const LONG_MINUTES = 90;

/** Ends the process group when the time is up. */
async function within(limitMs, starting) {
  const child = starting();
  let hung = false;
  const timer = setTimeout(() => {
    hung = true;
    endChild(child, "SIGKILL");
  }, limitMs);
  try {
    return { code: await exited(child), hung };
  } finally {
    clearTimeout(timer);
  }
}

function skippedWhole(title, reason) {
  return { passed: 0, failed: [], skipped: [{ file: title, name: "all of it", reason }], unhandled: [] };
}

/** Prints what failed, what was skipped and why, then the counts. Returns the exit code. */
export function summarize(reports, { long, print = (line) => process.stdout.write(`${line}\n`) }) {
  const failed = reports.flatMap((report) => report.failed);
  const skipped = reports.flatMap((report) => report.skipped);
  const passed = reports.reduce((sum, report) => sum + report.passed, 0);
  if (skipped.length > 0) {
    print(`\nSkipped${long ? "" : " (npm run test:long runs what is only left out for its time)"}:`);
    for (const [reason, lines] of grouped(skipped)) {
      print(`  ${reason}`);
      for (const { file, name } of lines.slice(0, LINES_SHOWN)) print(`    ${file}: ${name}`);
      if (lines.length > LINES_SHOWN) print(`    and ${lines.length - LINES_SHOWN} more`);
    }
  }
  if (failed.length > 0) {
    print("\nFailed:");
    for (const { file, name, reason } of failed)
      print(`  ${file}: ${name}${reason === undefined ? "" : `\n    ${String(reason).split("\n", 1)[0]}`}`);
  }
  print("");
  print(`${passed} passed, ${failed.length} failed, ${skipped.length} skipped`);
  return failed.length === 0 ? 0 : 1;
}

const LINES_SHOWN = 5;

function grouped(skipped) {
  const groups = new Map();
  for (const line of skipped) {
    const reason = line.reason ?? "no reason given";
    groups.set(reason, [...(groups.get(reason) ?? []), line]);
  }
  return groups;
}
