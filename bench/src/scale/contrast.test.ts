import { describe, expect, it } from "vitest";
import { sampleOf } from "../cells.test.kit.js";
import { type Contrast, contrastFigure, inTurns } from "./contrast.js";

const contrast = (fewSamples: Contrast["fewSamples"], manySamples: Contrast["manySamples"]): Contrast => ({
  ledger: "sqlite",
  what: "things",
  few: 1,
  many: 1_000,
  fewSamples,
  manySamples,
});

describe("a contrast", () => {
  it("is the median of the rounds' own ratios", () => {
    const found = contrastFigure(
      contrast([{ p50Ms: 1 }, { p50Ms: 2 }, { p50Ms: 10 }], [{ p50Ms: 2 }, { p50Ms: 2 }, { p50Ms: 15 }]),
      "p50Ms",
    );
    expect(found).toEqual({ few: 2, many: 2, ratio: 1.5 });
  });

  it("has no figure of what was not measured", () => {
    expect(contrastFigure(contrast([{ p50Ms: 1 }], [{ p50Ms: 1 }]), "p99Ms")).toBeUndefined();
  });

  it("refuses sides with different numbers of rounds", () => {
    expect(() => contrastFigure(contrast([{ p50Ms: 1 }], []), "p50Ms")).toThrow("1 rounds with few things, 0 with many");
  });

  it("warms both sides up and lets each begin as often as the other", async () => {
    const order: string[] = [];
    const side = (name: string) => ({
      async measure({ durationMs }: { readonly durationMs: number }) {
        order.push(`${name}${durationMs}`);
        return { ...sampleOf(), calls: 1 };
      },
    });
    const found = await inTurns(side("f"), side("m"), { rounds: 2, warmUpMs: 9, load: { inFlight: 1, durationMs: 5 } });
    expect(order).toEqual(["f9", "m9", "f5", "m5", "m5", "f5"]);
    expect([found.fewSamples.length, found.manySamples.length]).toEqual([2, 2]);
  });
});
