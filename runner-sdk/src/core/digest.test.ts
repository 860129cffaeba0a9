import { createHash } from "node:crypto";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { sha256Hex, sha256Inline } from "./digest.js";

const expected = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

describe("SHA-256", () => {
  it("agrees with the platform for every length around the block borders, without the platform", () => {
    for (let length = 0; length <= 260; length++) {
      const bytes = Uint8Array.from({ length }, (_, index) => (index * 31 + length) & 255);
      expect(sha256Inline(bytes)).toBe(expected(bytes));
    }
  });

  it("agrees for any text, short and long", async () => {
    await fc.assert(
      fc.asyncProperty(fc.string({ unit: "binary", maxLength: 400 }), async (text) => {
        expect(await sha256Hex(text)).toBe(expected(new TextEncoder().encode(text)));
      }),
    );
    const long = "ü".repeat(600_000);
    expect(await sha256Hex(long)).toBe(expected(new TextEncoder().encode(long)));
  });
});
