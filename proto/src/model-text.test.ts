import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ERROR_CODES } from "./error-codes.js";
import { MODEL_TEXT_BYTES_MAX, modelText } from "./model-text.js";
import { cutUtf8, utf8Length } from "./utf8.js";

const callErrors = Object.entries(ERROR_CODES)
  .filter(([, row]) => row.type === "call_error")
  .map(([code]) => code);

describe("text for the model", () => {
  it.each(callErrors)("says for %s what happened, the details and what to do", (code) => {
    const text = modelText(code, "the details");
    expect(text).toContain(" Details: the details ");
    expect(text).not.toContain("The tool reported an error");
    expect(text.split("Details: the details ")[1]).toMatch(/^[A-Z].*\.$/);
    expect(modelText(code, " ")).not.toContain("Details");
  });

  it("differs for each code", () => {
    expect(new Set(callErrors.map((code) => modelText(code, ""))).size).toBe(callErrors.length);
  });

  it("never advises to repeat what may have been done, or what a person refused", () => {
    for (const code of ["outcome_unknown", "confirmation_denied", "call_cancelled", "result_invalid", "result_not_json"]) {
      expect(modelText(code, "")).toMatch(/Do not (repeat|try) /);
    }
  });

  it("passes on a code that the tool's author chose", () => {
    expect(modelText("order_unknown", "There is no order A2.")).toBe(
      "The tool reported an error (order_unknown). Details: There is no order A2. Act on what it says; the same call will most likely end the same way.",
    );
    expect(modelText("constructor", "")).toContain("(constructor)");
  });

  it("stays within its bytes for any code and message, and is well-formed", () => {
    const unit = fc.constantFrom("a", "é", "世", "😀", "\ud800", "\n", "\ufeff");
    fc.assert(
      fc.property(
        fc.oneof(fc.constantFrom(...callErrors), fc.string({ unit, maxLength: 400 })),
        fc.string({ unit, maxLength: 2_000 }),
        (code, message) => {
          const text = modelText(code, message);
          expect(utf8Length(text)).toBeLessThanOrEqual(MODEL_TEXT_BYTES_MAX);
          expect(utf8Length(text)).toBe(new TextEncoder().encode(text).length);
        },
      ),
    );
  });
});

describe("cutUtf8", () => {
  it("keeps the longest beginning that fits, cut between characters", () => {
    const unit = fc.constantFrom("a", "é", "世", "😀", "\ufeff");
    fc.assert(
      fc.property(fc.string({ unit, maxLength: 30 }), fc.nat(60), (text, maxBytes) => {
        const cut = cutUtf8(text, maxBytes);
        expect(text.startsWith(cut)).toBe(true);
        expect(utf8Length(cut)).toBeLessThanOrEqual(maxBytes);
        const next = [...text.slice(cut.length)][0];
        if (next !== undefined) expect(utf8Length(cut + next)).toBeGreaterThan(maxBytes);
      }),
    );
  });
});
