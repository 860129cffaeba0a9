import { describe, expect, it } from "vitest";
import { ID_CHARACTERS, idText } from "./id-text.js";

describe("the spelling of ids", () => {
  it("is the prefix and a character for the low five bits of each byte, from the start that was named on", () => {
    const bytes = Uint8Array.from({ length: ID_CHARACTERS + 2 }, (_, index) => index + 32 * (index % 8));
    expect(idText("call", bytes)).toBe("call_abcdefghijklmnopqrstuvwxyz");
    expect(idText("entry", bytes, 2)).toBe("entry_cdefghijklmnopqrstuvwxyz23");
  });
});
