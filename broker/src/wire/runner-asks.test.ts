import { describe, expect, it } from "vitest";
import { LedgerError } from "../domain/ports/ledger.js";
import type { CallRouter } from "./call-router.js";
import { RunnerAsks } from "./runner-asks.js";
import { recordedLog } from "./wire.test.kit.js";

const session = {
  ref: { application: "default", binding: "shop", subject: "", brokerId: "broker_1", runnerId: "runner-1", sessionEpoch: 1 },
} as const;

describe("a frame of a runner's that could not be carried out", () => {
  it("is an error that names runner and call", () => {
    const { lines, log } = recordedLog();
    new RunnerAsks({ router: {} as CallRouter, log }).failed(session, "call_1", "receipt", new Error("boom"));
    expect(lines).toMatchObject([
      { event: "frame_failed", fields: { runner_id: "runner-1", call_id: "call_1", what: "receipt", error: "boom" } },
    ]);
  });

  it("is none when the broker stopped meanwhile: the runner says it again to another one", () => {
    const { lines, log } = recordedLog();
    new RunnerAsks({ router: {} as CallRouter, log }).failed(
      session,
      "call_1",
      "receipt",
      new LedgerError("closed", "the ledger was closed"),
    );
    expect(lines).toEqual([]);
  });
});
