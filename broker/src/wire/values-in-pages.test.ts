import { describe, expect, it } from "vitest";
import { ValuesInPages } from "./values-in-pages.js";

const MIB = 1_048_576;

function values() {
  const loads: string[] = [];
  const fails = new Set<string>();
  const made = new ValuesInPages(async (name) => {
    loads.push(name);
    if (fails.has(name)) throw new Error("away");
    return Buffer.from(name);
  });
  return { values: made, loads, fails };
}

describe("values that are read in pages (L7)", () => {
  it("are loaded once, however many read them at once and after", async () => {
    const { values: read, loads } = values();
    const all = await Promise.all([read.get("a", MIB), read.get("a", MIB), read.get("b", MIB)]);
    await read.get("a", MIB);
    expect(all.map(String)).toEqual(["a", "a", "b"]);
    expect(loads).toEqual(["a", "b"]);
    expect(read.size).toBe(2 * MIB);
  });

  it("are forgotten when they are many, the one that was read longest ago first", async () => {
    const { values: read, loads } = values();
    for (const name of ["a", "b", "c", "d"]) await read.get(name, 16 * MIB);
    await read.get("a", 16 * MIB);
    await read.get("e", 16 * MIB);
    expect(read.size).toBe(64 * MIB);
    await read.get("a", 16 * MIB);
    await read.get("b", 16 * MIB);
    expect(loads).toEqual(["a", "b", "c", "d", "e", "b"]);
    await read.get("huge", 65 * MIB);
    expect(read.size).toBe(0);
  });

  it("are asked for again after a read that failed", async () => {
    const { values: read, loads, fails } = values();
    fails.add("a");
    await expect(read.get("a", MIB)).rejects.toThrow("away");
    fails.delete("a");
    expect(String(await read.get("a", MIB))).toBe("a");
    expect([loads.length, read.size]).toEqual([2, MIB]);
  });
});
