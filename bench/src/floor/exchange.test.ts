import { describe, expect, it } from "vitest";
import { createExchange } from "./exchange.js";
import { frameOf, numberOf, payloadOf } from "./frame.js";

describe("the floor's exchange", () => {
  it("gives each answer to its own question, in whatever order they come", async () => {
    const sent: Buffer[] = [];
    const exchange = createExchange((frame) => sent.push(frame));
    const answers = ["a", "bb", "ccc"].map((text) => exchange.ask(Buffer.from(text)));
    for (const frame of sent.reverse()) exchange.received(frameOf(numberOf(frame), Buffer.from(`${payloadOf(frame)}!`)));
    expect((await Promise.all(answers)).map(String)).toEqual(["a!", "bb!", "ccc!"]);
  });

  it("does not take an answer that nobody asked for: a floor that loses count measures nothing", () => {
    const exchange = createExchange(() => undefined);
    void exchange.ask(Buffer.from("a"));
    expect(() => exchange.received(frameOf(99, Buffer.alloc(0)))).toThrow("99");
  });
});
