import { describe, expect, it } from "vitest";
import { SettledCopy } from "./settled-copy.js";

const TEMPLATE = [
  { version: 7, entryId: "ent_accepted", data: '{"kind":"accepted","request":{"callId":"call_a"},"units":17,"text":{"note":"call_a"}}' },
  { version: 9, entryId: "ent_receipt", data: '{"kind":"receipt","receipt":{"grantId":"ent_accepted","fence":7,"attempt":1},"at":7}' },
];

describe("a copy of a settled call", () => {
  it("names its own call, grant and fence, and is otherwise to the letter", () => {
    const copy = new SettledCopy(TEMPLATE, "call_a", "call_b", ["ent_1", "ent_2"]);
    expect(copy.entry(0)).toEqual({
      entryId: "ent_1",
      data: '{"kind":"accepted","request":{"callId":"call_b"},"units":17,"text":{"note":"call_b"}}',
    });
    copy.stored(0, 1_234);
    expect(copy.entry(1)).toEqual({
      entryId: "ent_2",
      data: '{"kind":"receipt","receipt":{"grantId":"ent_1","fence":1234,"attempt":1},"at":7}',
    });
  });

  it("needs an id for each entry", () => {
    expect(() => new SettledCopy(TEMPLATE, "call_a", "call_b", ["ent_1"])).toThrow("2 entries need as many ids, not 1");
  });
});
