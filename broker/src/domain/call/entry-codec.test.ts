import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { anyEntry, anyWalk, forAll, walk } from "../../testing/arbitrary-call.js";
import { acceptedEntry, receiptEntry, receiptFacts, sampleRequest } from "../../testing/sample-call.js";
import type { StoredEntry } from "../ports/ledger.js";
import type { CallEntry } from "./entries.js";
import { decodeEntry, EntryFormatError, encodeEntry } from "./entry-codec.js";
import { replay } from "./replay.js";

function stored(data: string, place: Partial<StoredEntry> = {}): StoredEntry {
  return { callId: "call_sample", version: 7, previous: 3, entryId: "entry_7", data, ...place };
}

const roundTrip = (entry: CallEntry): unknown => decodeEntry(stored(encodeEntry(entry)));

describe("the entry codec", () => {
  it("gives back every entry as it was, with its place", () => {
    forAll(
      fc.property(anyEntry, (entry) => {
        expect(roundTrip(entry)).toStrictEqual({ ...entry, entryId: "entry_7", version: 7 });
      }),
      3_000,
    );
  });

  it("writes JSON, so that people and tools can read a ledger", () => {
    forAll(
      fc.property(anyEntry, (entry) => {
        expect(JSON.parse(encodeEntry(entry))).toMatchObject({ f: 1, kind: entry.kind, at: entry.at });
      }),
      300,
    );
  });

  it("survives UTF-8: what is encoded has no lone surrogate", () => {
    forAll(
      fc.property(anyEntry, (entry) => {
        const data = encodeEntry(entry);
        expect(Buffer.from(data).toString("utf8")).toBe(data);
      }),
      1_000,
    );
  });

  it("replays a stored log to the state of the entries that were written", () => {
    forAll(
      fc.property(anyWalk, (seed) => {
        const steps = walk(seed);
        const read = steps.map(({ entry }) => {
          const { entryId, version, ...written } = entry;
          return decodeEntry(stored(encodeEntry(written as CallEntry), { entryId, version }));
        });
        expect(replay(read, () => {}).state).toEqual(steps.at(-1)?.after);
      }),
      150,
    );
  });

  it.each([
    ["a key that objects trip over", '{"__proto__":{"polluted":true},"constructor":1}'],
    ["a number that is no double", "[1e400,-0,12345678901234567890,1.0]"],
    ["keys that look like indexes", '{"2":1,"1":2,"b":3,"a":4}'],
    ["the same key twice", '{"a":1,"a":2}'],
    ["fields that the codec uses itself", '{"text":1,"units":2,"f":9,"blob":{"name":"x","bytes":1},"kind":"denied"}'],
    ["its own spelling", ' { "a" : [ 1 , "\\u0041\\ud83d\\ude00\\ud800" ] } '],
    ["quotes and backslashes", JSON.stringify('","text":"\\",\\"text\\":')],
    ["a depth that no recursion survives", `${"[".repeat(100_000)}${"]".repeat(100_000)}`],
  ])("keeps arguments and results to the letter with %s", (_what, json) => {
    expect(roundTrip(acceptedEntry(sampleRequest(), { argumentsJson: json }))).toMatchObject({ argumentsJson: json });
    const value = { kind: "inline", json, bytes: Buffer.byteLength(json) } as const;
    expect(roundTrip(receiptEntry(receiptFacts("entry_1", { value })))).toMatchObject({ receipt: { value } });
    expect(Object.hasOwn(Object.prototype, "polluted")).toBe(false);
  });

  it("keeps a result of 1 MiB and counts its bytes, not its characters", () => {
    const json = JSON.stringify("é😀".repeat(170_000));
    const value = { kind: "inline", json, bytes: Buffer.byteLength(json) } as const;
    expect(roundTrip(receiptEntry(receiptFacts("entry_1", { value })))).toMatchObject({ receipt: { value } });
  });

  it.each([
    ["a later format", '{"f":3,"kind":"accepted"}', /format 3.*Update the broker/],
    ["no format", '{"kind":"accepted"}', /format undefined/],
    ["a format that is a string", '{"f":"1"}', /format 1;/],
    ["null", "null", /format undefined/],
    ["a number", "17", /format undefined/],
    ["an array", "[1]", /format undefined/],
    ["no JSON", "{", /not JSON/],
    ["nothing", "", /not JSON/],
  ])("refuses %s with an EntryFormatError that names the entry", (_what, data, message) => {
    expect(() => decodeEntry(stored(data))).toThrow(EntryFormatError);
    expect(() => decodeEntry(stored(data))).toThrow(message);
    expect(() => decodeEntry(stored(data))).toThrow(/entry_7 of call call_sample/);
  });
});
