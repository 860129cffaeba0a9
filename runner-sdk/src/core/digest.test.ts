import { createHash } from "node:crypto";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { sha256OfNode } from "../node/sha256.js";
import { sha256Hex, sha256Inline } from "./digest.js";

const expected = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

describe("SHA-256", () => {
  it("agrees with the platform for every length around the block borders, without the platform", () => {
    for (let length = 0; length <= 260; length++) {
      const bytes = Uint8Array.from({ length }, (_, index) => (index * 31 + length) & 255);
      expect(sha256Inline(bytes)).toBe(expected(bytes));
    }
  });

  it.each([
    ["on Node", sha256OfNode],
    ["on any platform", sha256Hex],
  ])("agrees for any text, short and long, %s", async (_name, sha256) => {
    await fc.assert(
      fc.asyncProperty(fc.string({ unit: "binary", maxLength: 400 }), async (text) => {
        expect(await sha256(text)).toBe(expected(new TextEncoder().encode(text)));
      }),
    );
    const long = "ü".repeat(600_000);
    expect(await sha256(long)).toBe(expected(new TextEncoder().encode(long)));
    expect(await sha256("lone \ud800")).toBe(expected(new TextEncoder().encode("lone \ud800")));
  });
});
