import { describe, expect, it } from "vitest";
import { runLoad } from "./load.js";
import { PAYLOAD_BYTES, PAYLOAD_JSON } from "./payload.js";

describe("a load", () => {
  it("keeps as many calls in flight as it should, never more, and times each", async () => {
    let present = 0;
    let most = 0;
    let calls = 0;
    const result = await runLoad(
      async () => {
        present += 1;
        most = Math.max(most, present);
        await new Promise((resolve) => setTimeout(resolve, 2));
        present -= 1;
        calls += 1;
      },
      { inFlight: 8, durationMs: 30 },
    );
    expect(most).toBe(8);
    expect(present).toBe(0);
    expect(result.latenciesMs).toHaveLength(calls);
    expect(calls).toBeGreaterThan(8);
    expect(Math.min(...result.latenciesMs)).toBeGreaterThan(1);
    expect(result.elapsedMs).toBeGreaterThanOrEqual(30);
  });

  it("makes one call for each in flight even when there is no time", async () => {
    expect((await runLoad(async () => undefined, { inFlight: 3, durationMs: 0 })).latenciesMs).toHaveLength(3);
  });

  it("ends with the failure of a call", async () => {
    let calls = 0;
    const failing = async (): Promise<void> => {
      calls += 1;
      if (calls === 5) throw new Error("no runner");
      await new Promise((resolve) => setImmediate(resolve));
    };
    await expect(runLoad(failing, { inFlight: 2, durationMs: 60_000 })).rejects.toThrow("no runner");
  });
});

describe("the payload", () => {
  it("is 200 bytes of JSON", () => {
    expect(Buffer.byteLength(PAYLOAD_JSON)).toBe(PAYLOAD_BYTES);
    expect(PAYLOAD_BYTES).toBe(200);
  });
});
