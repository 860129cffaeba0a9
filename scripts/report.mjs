/**
 * A vitest reporter that writes what the test job prints at its end: counts, what failed, what was skipped and why.
 * The reason of a skip is its note (`context.skip("reason")`); a skipped suite or test says it in its title, in brackets.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, relative } from "node:path";

/** @typedef {{ file: string, name: string, reason?: string }} Line */
/** @typedef {{ passed: number, failed: Line[], skipped: Line[], unhandled: string[], running?: string[] }} Report */

const BRACKETED = /\[([^\]]+)\]/;
const REASON_IN_TITLE = /\(([^()]*(?:needs|only|not |no |long|without|TOOLRUNNER_)[^()]*)\)/i;

/** Makes the reporter; the file's path comes from the environment, since vitest builds reporters itself. */
export default class ReportFile {
  #path = process.env.TOOLRUNNER_TEST_REPORT;
  #begun = new Set();
  #ended = new Set();

  onTestModuleStart(module) {
    this.#begun.add(module);
    this.#write([...this.#ended], []);
  }

  /** Written after each file: when a run has to be ended from outside, what it knew is there, and which files hung. */
  onTestModuleEnd(module) {
    this.#begun.delete(module);
    this.#ended.add(module);
    this.#write([...this.#ended], []);
  }

  onTestRunEnd(modules, unhandledErrors) {
    this.#begun.clear();
    this.#write(modules, unhandledErrors);
  }

  #write(modules, unhandledErrors) {
    if (this.#path === undefined) return;
    mkdirSync(dirname(this.#path), { recursive: true });
    const running = [...this.#begun].map(({ moduleId }) => relative(process.cwd(), moduleId));
    writeFileSync(this.#path, JSON.stringify({ ...reportOf(modules, unhandledErrors), running }));
  }
}

/** Exported for its test. A file that could not be loaded, or holds no test, is a failure of its own. */
export function reportOf(modules, unhandledErrors, root = process.cwd()) {
  /** @type {Report} */
  const report = { passed: 0, failed: [], skipped: [], unhandled: unhandledErrors.map((error) => String(error?.message ?? error)) };
  for (const module of modules) {
    const file = relative(root, module.moduleId);
    const errors = module.errors();
    if (errors.length > 0) report.failed.push({ file, name: "(the file itself)", reason: errors[0].message });
    for (const suite of module.children.allSuites()) {
      const [error] = suite.errors();
      if (error !== undefined) report.failed.push({ file, name: `${suite.fullName} (its set-up or tear-down)`, reason: error.message });
    }
    for (const test of module.children.allTests()) {
      const result = test.result();
      if (result.state === "passed") report.passed += 1;
      else if (result.state === "failed") report.failed.push({ file, name: test.fullName, reason: result.errors?.[0]?.message });
      else report.skipped.push({ file, name: test.fullName, reason: reasonOf(test.fullName, result.note) });
    }
  }
  return report;
}

function reasonOf(fullName, note) {
  return note ?? BRACKETED.exec(fullName)?.[1] ?? REASON_IN_TITLE.exec(fullName)?.[1];
}
