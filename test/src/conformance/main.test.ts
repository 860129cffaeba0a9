import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";

const MAIN = fileURLToPath(new URL("./main.js", import.meta.url));
const PLAIN = fileURLToPath(new URL("../../conformance/plain-runner.mjs", import.meta.url));

function run(...args: string[]) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [MAIN, ...args], { encoding: "utf8", timeout: 60_000 });
  return { status, stdout, stderr };
}

describe("npm run conformance (R10)", () => {
  it("prints a line for each case, why one was skipped and where to read, and counts", () => {
    const { status, stdout } = run("runner", "--only", "golden-frames,hello", "--", process.execPath, PLAIN);
    expect(status).toBe(0);
    expect(stdout).toMatch(/^skipped golden-frames: .*\n {4}.*"codec"\n {4}docs\/protocol\.md, Transports$/m);
    expect(stdout).toMatch(/^passed {2}hello: /m);
    expect(stdout).toMatch(/^1 passed, 0 failed, 1 skipped$/m);
  });

  it("prints one object with --json, and ends with 1 when a case failed", () => {
    const { status, stdout } = run(
      "runner",
      "--json",
      "--only",
      "unknown-frame",
      "--",
      process.execPath,
      PLAIN,
      "--fault",
      "skips-unknown-frames",
    );
    expect(status).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject({ side: "runner", failed: 1, cases: [{ id: "unknown-frame", outcome: "failed" }] });
  });

  it.each([
    [["--", "x"], "say runner or broker"],
    [["runner"], "no command after --"],
    [["runner", "broker", "--", "x"], "say runner or broker"],
    [["runner", "--wire", "carrier-pigeon", "--", "x"], "carrier-pigeon"],
    [["broker", "--wire", "grpc", "--", "x"], "no --wire grpc for a broker"],
    [["runner", "--only", "nope", "--", "x"], "there is no case nope; there are golden-frames, hello"],
    [["runner", "--at-once", "0", "--", "x"], "--at-once is 1 to 64"],
    [["runner", "--nope", "--", "x"], "nope"],
  ])("answers %j with usage", (args, message) => {
    const { status, stdout, stderr } = run(...args);
    expect({ status, stdout }).toEqual({ status: 2, stdout: "" });
    expect(stderr).toContain(message);
    expect(stderr).toContain("npm run conformance -- runner");
  });
});
