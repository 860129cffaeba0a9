/** The parts of the job scripts that decide something. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ensureChromium } from "./ensure-chromium.mjs";
import { reportOf } from "./report.mjs";
import { checkNode, installReason, isOlder, removeStaleTests } from "./set-up.mjs";
import { summarize } from "./test-job.mjs";

let root;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "toolrunner-scripts-"));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

function write(path, content) {
  mkdirSync(join(root, path, ".."), { recursive: true });
  writeFileSync(join(root, path), typeof content === "string" ? content : JSON.stringify(content));
}

describe("the Node in use", () => {
  it("is compared number by number", () => {
    expect([
      isOlder("20.9.0", "20.19.0"),
      isOlder("20.19", "20.19.0"),
      isOlder("22.0.0", "20.19.0"),
      isOlder("18.99.99", "20.19.0"),
    ]).toEqual([true, false, false, true]);
  });

  it("is refused with both versions when it is too old", () => {
    expect(() => checkNode("20.18.3")).toThrow(/20\.18\.3 is too old.*20\.19\.0/);
    expect(() => checkNode("20.19.0")).not.toThrow();
  });
});

describe("installation", () => {
  const lock = (version) => ({
    packages: { "": {}, "node_modules/a": { version }, "node_modules/b": { version: "1.0.0", optional: true }, cli: {} },
  });
  const addOn = "node_modules/better-sqlite3/build/Release/better_sqlite3.node";

  it("is needed without node_modules, with another version, and with a package missing", () => {
    write("package-lock.json", lock("1.0.0"));
    expect(installReason({ root })).toMatch("node_modules is missing");
    write("node_modules/.package-lock.json", { packages: { "node_modules/a": { version: "0.9.0" } } });
    expect(installReason({ root })).toMatch("node_modules/a is 0.9.0");
    write("node_modules/.package-lock.json", { packages: {} });
    expect(installReason({ root })).toMatch("node_modules/a is missing");
  });

  it("is not needed when npm installed just that, leaving out what is optional", () => {
    write("package-lock.json", lock("1.0.0"));
    write("node_modules/.package-lock.json", { packages: { "node_modules/a": { version: "1.0.0" } } });
    expect(installReason({ root })).toMatch("better-sqlite3 is not built");
    write(addOn, "");
    expect(installReason({ root })).toBeUndefined();
  });

  it("is needed again for another Node", () => {
    write("package-lock.json", lock("1.0.0"));
    write("node_modules/.package-lock.json", { packages: { "node_modules/a": { version: "1.0.0" } } });
    write("node_modules/.toolrunner-installed.json", { lock: "", abi: "1" });
    expect(installReason({ root, abi: "2" })).toMatch("built for another Node");
  });
});

describe("compiled tests", () => {
  it("whose source is gone are removed, others and other files are kept", () => {
    for (const path of ["src/kept.test.ts", "dist/kept.test.js", "dist/deep/gone.test.js", "dist/gone.js"]) write(path, "");
    expect(removeStaleTests([root])).toEqual([join(root, "dist/deep/gone.test.js")]);
    expect(removeStaleTests([root])).toEqual([]);
  });
});

describe("the report of a run", () => {
  const test = (fullName, result) => ({ fullName, result: () => result });
  const module = (tests, errors = [], suites = []) => ({
    moduleId: "/repo/dist/a.test.js",
    errors: () => errors,
    children: { allTests: () => tests, allSuites: () => suites },
  });

  it("counts tests, and takes the reason of a skip from its note or its title", () => {
    const tests = [
      test("a > works", { state: "passed" }),
      test("a > breaks", { state: "failed", errors: [{ message: "expected 1" }] }),
      test("a > waits", { state: "skipped", note: "no nats-server" }),
      test("a (needs TOOLRUNNER_LONG=1) > runs long", { state: "skipped" }),
      test("a > is silent", { state: "skipped" }),
    ];
    expect(reportOf([module(tests)], [], "/repo")).toEqual({
      passed: 1,
      failed: [{ file: "dist/a.test.js", name: "a > breaks", reason: "expected 1" }],
      skipped: [
        { file: "dist/a.test.js", name: "a > waits", reason: "no nats-server" },
        { file: "dist/a.test.js", name: "a (needs TOOLRUNNER_LONG=1) > runs long", reason: "needs TOOLRUNNER_LONG=1" },
        { file: "dist/a.test.js", name: "a > is silent", reason: undefined },
      ],
      unhandled: [],
    });
  });

  it("holds files that could not be loaded, set-ups that failed and errors outside any test", () => {
    const suites = [{ fullName: "a", errors: () => [{ message: "no port" }] }];
    const report = reportOf([module([], [{ message: "cannot import" }], suites)], [new Error("late")], "/repo");
    expect(report.failed.map(({ reason }) => reason)).toEqual(["cannot import", "no port"]);
    expect(report.unhandled).toEqual(["late"]);
  });
});

describe("the summary", () => {
  const summary = (reports) => {
    const lines = [];
    const code = summarize(reports, { long: false, print: (line) => lines.push(...line.split("\n")) });
    return { code, lines };
  };
  const line = (name, reason) => ({ file: "f", name, reason });

  it("ends with the counts alone on a line, and fails when a test failed", () => {
    const { code, lines } = summary([
      { passed: 2, failed: [line("x", "why\nmore")], skipped: [line("y", "no server")] },
      { passed: 3, failed: [], skipped: [line("z", undefined)] },
    ]);
    expect(code).toBe(1);
    expect(lines.at(-1)).toBe("5 passed, 1 failed, 2 skipped");
    expect(lines).toEqual(expect.arrayContaining(["  no server", "    f: y", "  no reason given", "  f: x", "    why"]));
    expect(summary([{ passed: 1, failed: [], skipped: [] }])).toEqual({ code: 0, lines: ["", "1 passed, 0 failed, 0 skipped"] });
  });
});

describe("a Chromium for the tests of pages", () => {
  const never = () => Promise.reject(new Error("nothing is installed"));
  const here = process.execPath;

  it("is the one that is named, else the one that is there", async () => {
    const named = { TOOLRUNNER_CHROMIUM: here };
    expect(await ensureChromium({ environment: named, installed: [], install: never })).toBe(here);
    expect(await ensureChromium({ environment: {}, installed: ["/nowhere", here], install: never })).toBe(here);
    const wrong = ensureChromium({ environment: { TOOLRUNNER_CHROMIUM: "/nowhere" }, installed: [here], install: never });
    await expect(wrong).rejects.toThrow("TOOLRUNNER_CHROMIUM=/nowhere is no file");
  });

  it("is installed where there is none, and an installation that brings none is said", async () => {
    const installed = [];
    const install = async () => void installed.push(here);
    expect(await ensureChromium({ environment: {}, installed, install })).toBe(here);
    await expect(ensureChromium({ environment: {}, installed: [], install: async () => {} })).rejects.toThrow("TOOLRUNNER_CHROMIUM");
    await expect(ensureChromium({ environment: {}, installed: [], install: never })).rejects.toThrow("nothing is installed");
  });
});
