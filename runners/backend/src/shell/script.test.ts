import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, realpathSync } from "node:fs";
import path from "node:path";
import { GRANT_MARK } from "@toolrunner/runner-sdk/node";
import { describe, expect, it } from "vitest";
import { useFolders, writeTree } from "../testing/temp-folders.js";
import { parseShellState, shellScript } from "./script.js";

const makeFolder = useFolders();

describe("bash: sh in its place (W6)", () => {
  it("carries directory and variables over in a plain sh too", async ({ skip }) => {
    skip(!existsSync("/bin/dash"), "dash is not installed");
    const folder = makeFolder();
    mkdirSync(path.join(folder, "d"));
    const options = { stateFile: path.join(folder, "state"), endMark: "end", marks: { [GRANT_MARK]: "call_sh" } };
    const first = shellScript({ ...options, exportsFile: undefined });
    execFileSync("/bin/dash", ["-c", first, "sh", 'cd d; export A="it\'s\ntwo"; exit 0'], { cwd: folder });
    const state = parseShellState(readFileSync(options.stateFile), "end");
    expect(state?.directory).toBe(path.join(realpathSync(folder), "d"));
    writeTree(folder, { exports: state?.exports ?? "" });
    const second = shellScript({ ...options, exportsFile: path.join(folder, "exports") });
    expect(execFileSync("/bin/dash", ["-c", second, "sh", 'printf %s "$A"; exit 0'], { cwd: folder, encoding: "utf8", env: {} })).toBe(
      "it's\ntwo",
    );
  });
});
