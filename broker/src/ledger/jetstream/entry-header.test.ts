import { headers, type MsgHdrs } from "@nats-io/nats-core";
import { MsgHdrsImpl } from "@nats-io/nats-core/internal";
import { describe, expect, it } from "vitest";
import { entryHeaders, expectingHeaders, parseEntryHeader, parseNote } from "./entry-header.js";
import { decodeHeaders } from "./stored-message.js";

/** What arrives of headers that were published. */
function arrived(published: MsgHdrs): MsgHdrs {
  if (!(published instanceof MsgHdrsImpl)) throw new Error("the client publishes headers of its own class only");
  return MsgHdrsImpl.decode(published.encode());
}

describe("the header of an entry", () => {
  it("holds mark, previous version, entry id and incarnation, and the compare for the server", () => {
    for (const mark of ["opens", "settles", "none"] as const) {
      const written = arrived(entryHeaders({ entryId: "ent_-1", data: "", mark }, 42, "inc_a"));
      expect(parseEntryHeader(written)).toEqual({ mark, previous: 42, entryId: "ent_-1", incarnation: "inc_a" });
      expect(written.get("Nats-Expected-Last-Subject-Sequence")).toBe("42");
      expect(parseNote(written)).toBeUndefined();
    }
    expect([...arrived(expectingHeaders(7))]).toEqual([["Nats-Expected-Last-Subject-Sequence", ["7"]]]);
  });

  it("gives a note back to the letter, whatever it names", () => {
    for (const note of ["succeeded", "=running", '["queued","a","b: c","d\\n","ü 😀",null,"\u0085","\u2028"]', "x".repeat(2_048)]) {
      const written = arrived(entryHeaders({ entryId: "e", data: "", mark: "none", note }, 1, "i"));
      expect(parseNote(written)).toBe(note);
      expect(parseEntryHeader(written)?.entryId).toBe("e");
    }
  });

  it("is read the same from the text that the API for stored messages gives", () => {
    const text = "NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 7\r\nTr-Entry: o 7 e i\r\nno colon\r\n\r\n";
    expect(parseEntryHeader(decodeHeaders(Buffer.from(text).toString("base64")))).toEqual({
      mark: "opens",
      previous: 7,
      entryId: "e",
      incarnation: "i",
    });
    expect(decodeHeaders(undefined)).toBeUndefined();
  });

  it("is none when a part is missing, of another shape, or too long", () => {
    expect(parseEntryHeader(undefined)).toBeUndefined();
    for (const value of [
      "",
      "o 1 e",
      "x 1 e i",
      "o -1 e i",
      "o 1 e i more",
      "o 99999999999999999 e i",
      `o 1 ${"e".repeat(65)} i`,
      "o 1 é i",
    ]) {
      const all = headers();
      all.append("Tr-Entry", value);
      expect(parseEntryHeader(all), value).toBeUndefined();
    }
  });
});
