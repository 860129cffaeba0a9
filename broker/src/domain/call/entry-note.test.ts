import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { anyWalk, forAll, walk } from "../../testing/arbitrary-call.js";
import { acceptedEntry, sampleRequest } from "../../testing/sample-call.js";
import { CALL_STATES } from "../call-view.js";
import { NOTE_UNITS_MAX } from "../ports/ledger.js";
import { edgeFor } from "./edges.js";
import type { CallEntry } from "./entries.js";
import { namesOf, noteOf, readNote } from "./entry-note.js";

function noteOfAcceptance(request: Parameters<typeof sampleRequest>[0]): string | undefined {
  const entry: CallEntry = acceptedEntry(sampleRequest(request));
  const edge = edgeFor({ kind: "requested" }, entry);
  if (edge === undefined) throw new Error("the sample is not accepted");
  return noteOf(edge, entry);
}

describe("the note of an entry", () => {
  it("says the state that the machine gives the call, whether that is a change, and an acceptance's names", () => {
    forAll(
      fc.property(anyWalk, (seed) => {
        for (const { before, entry, edge, after } of walk(seed)) {
          if (edge === undefined) continue;
          const note = readNote(noteOf(edge, entry));
          expect(note?.state).toBe(after.kind);
          expect(note?.stays).toBe(before.kind === after.kind);
          expect(note?.names).toEqual(entry.kind === "accepted" ? namesOf(entry.request) : undefined);
        }
      }),
      300,
    );
  });

  it("is one line that comes back to the letter, whatever the names are", () => {
    forAll(
      fc.property(fc.string({ unit: "binary" }), fc.option(fc.string({ unit: "binary" })), (tool, subject) => {
        const note = noteOfAcceptance({ tool, subject });
        if (note === undefined) return;
        expect(note).not.toMatch(/[\r\n]/);
        expect(readNote(note)?.names).toMatchObject({ tool, subject });
      }),
      300,
    );
  });

  it("is left out when the names are too long for a header", () => {
    expect(noteOfAcceptance({ tool: "t".repeat(NOTE_UNITS_MAX) })).toBeUndefined();
    expect(noteOfAcceptance({ tool: "t".repeat(1_000) })?.length).toBeLessThanOrEqual(NOTE_UNITS_MAX);
  });

  it.each([
    undefined,
    "",
    "moon",
    "=moon",
    "=",
    "[",
    "[]",
    "{}",
    "null",
    '["moon","a","b","c","d",null,null,null]',
    '["=queued","a","b","c","d",null,null,null]',
    '["queued","a","b","c",null,null,null,null]',
    '["queued","a","b","c","d",1,null,null]',
    '["queued","a","b","c","d",null,null,null,null]',
  ])("is none when it is of another form: %s", (text) => {
    expect(readNote(text)).toBeUndefined();
  });

  it("is known for every state", () => {
    for (const state of CALL_STATES) {
      expect(readNote(state)).toEqual({ state, stays: false, names: undefined });
      expect(readNote(`=${state}`)).toEqual({ state, stays: true, names: undefined });
    }
  });
});
