import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { createFakeBroker } from "@toolrunner/runner-sdk/testing";
import { afterEach, describe, expect, it } from "vitest";
import { desktopTools, onlyFor, startDesktopRunner } from "./desktop-runner.js";

const folders: string[] = [];
afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});
const makeFolder = (): string => {
  const folder = mkdtempSync(path.join(tmpdir(), "toolrunner-test-"));
  folders.push(folder);
  return folder;
};

/** True while a process runs; a zombie, whom nobody has collected yet, does not. */
const isRunning = (pid: number): boolean => {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    return !stat.slice(stat.lastIndexOf(")")).startsWith(") Z");
  } catch {
    return false;
  }
};

describe("the desktop runner", () => {
  it("has the workspace tools", () => {
    expect(desktopTools({ root: "." }).map((tool) => tool.name)).toEqual(["read", "glob", "grep", "bash"]);
  });

  it("serves its subject on its folder, and forbids calls for anybody else (X4, R11)", async () => {
    const broker = createFakeBroker();
    const starting = startDesktopRunner({ broker: broker.transport, subject: "user_1", workspace: { root: makeFolder() } });
    const session = await broker.nextSession();
    expect(await session.welcome()).toMatchObject({ binding: "desktop", subject: "user_1" });
    const runner = await starting;
    let job = 0;
    try {
      session.grant({ tool: "bash", argumentsJson: '{"command":"echo mine > file; cat file"}', subject: "user_1" });
      const receipt = await session.next("receipt");
      expect(receipt.outcome?.$case === "succeeded" && JSON.parse(receipt.outcome.value.resultJson)).toMatchObject({
        output: "mine\n",
        exit_code: 0,
      });
      session.acknowledge(receipt);
      for (const subject of ["user_2", ""]) {
        session.grant({ tool: "bash", argumentsJson: '{"command":"touch stolen"}', subject });
        expect(await session.next("decline")).toMatchObject({ message: "This machine belongs to another user." });
      }
      expect(session.all("started").length).toBe(1);
      session.grant({ tool: "bash", argumentsJson: '{"command":"sleep 1000 &"}', subject: "user_1" });
      const background = await session.next("receipt");
      job = background.outcome?.$case === "succeeded" ? Number(JSON.parse(background.outcome.value.resultJson).process_id) : 0;
      expect(isRunning(job)).toBe(true);
    } finally {
      await runner.stop();
    }
    for (const deadline = performance.now() + 5_000; isRunning(job); await new Promise((resolve) => setTimeout(resolve, 10))) {
      expect(performance.now()).toBeLessThan(deadline);
    }
  });

  it("does not start without a subject", async () => {
    expect(() => onlyFor("")).toThrow(RangeError);
    await expect(startDesktopRunner({ broker: "grpc://127.0.0.1:1", subject: "", workspace: { root: "." } })).rejects.toThrow(RangeError);
  });
});
