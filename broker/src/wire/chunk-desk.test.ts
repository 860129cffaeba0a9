import { createHash } from "node:crypto";
import { type BrokerFrame, ChunkVerdict, ResultChunk } from "@toolrunner/proto";
import { describe, expect, it } from "vitest";
import { CHUNK_BYTES_MAX, CHUNKS_BYTES_MAX, RESULT_CHUNKED_BYTES_MAX, SESSION_CHUNKS_BYTES_MAX } from "../domain/limits.js";
import { ChunkDesk } from "./chunk-desk.js";
import type { Session } from "./session.js";

const DIGEST = "d".repeat(64);

const session = (): Session => ({}) as Session;

function desk(resultBytesMax = RESULT_CHUNKED_BYTES_MAX) {
  let nowMs = 0;
  const made = new ChunkDesk({ clock: { monotonic: () => nowMs }, resultBytesMax });
  const pass = (ms: number): void => {
    nowMs += ms;
  };
  return { desk: made, pass };
}

const chunk = (index: number, data: string, more: Partial<ResultChunk> = {}): ResultChunk =>
  ResultChunk.create({ callId: "call_1", grantId: "entry_1", digest: DIGEST, index, data, totalBytes: 12, ...more });

/** The verdict, and how many chunks are there. */
function said(answer: BrokerFrame | string): readonly [string, number] | string {
  if (typeof answer === "string") return answer;
  if (answer.frame?.$case !== "chunkAnswer") throw new Error("not an answer to a chunk");
  return [ChunkVerdict[answer.frame.value.verdict], answer.frame.value.received];
}

const receipt = { callId: "call_1", grantId: "entry_1", digest: DIGEST };
const named = (text: string, count: number) => ({
  count,
  bytes: Buffer.byteLength(text),
  sha256: createHash("sha256").update(text).digest("hex"),
});

describe("a row of chunks", () => {
  it("is given to its receipt whole, and its room is free when that is dealt with", () => {
    const { desk: chunks } = desk();
    const one = session();
    const text = '"é0123456"';
    const more = { totalBytes: Buffer.byteLength(text) };
    expect(said(chunks.take(one, chunk(0, '"é01', more), false))).toEqual(["RECEIVED", 1]);
    expect(said(chunks.take(one, chunk(1, '23456"', more), false))).toEqual(["RECEIVED", 2]);
    const whole = chunks.whole(one, receipt, named(text, 2));
    if ("frame" in whole) throw new Error("not whole");
    expect([whole.text, whole.kind, chunks.heldBytes]).toEqual([text, "json", more.totalBytes]);
    whole.release();
    whole.release();
    expect(chunks.heldBytes).toBe(0);
    expect(said(chunks.whole(one, receipt, named(text, 2)) as BrokerFrame)).toEqual(["START_OVER", 0]);
  });

  it("that is broken is dropped and asked for again, and what comes after it, too", () => {
    const { desk: chunks } = desk();
    const broken: readonly (readonly [string, readonly ResultChunk[]])[] = [
      ["its first one is missing", [chunk(1, "b")]],
      ["one is missing", [chunk(0, "a"), chunk(2, "c")]],
      ["one comes twice", [chunk(0, "a"), chunk(1, "b"), chunk(1, "b")]],
      ["they come in another order", [chunk(0, "a"), chunk(2, "c"), chunk(1, "b")]],
      ["one is of another receipt", [chunk(0, "a"), chunk(1, "b", { digest: "e".repeat(64) })]],
      ["the size changes", [chunk(0, "a"), chunk(1, "b", { totalBytes: 13 })]],
      ["there is more than was said", [chunk(0, "0123456789"), chunk(1, "012")]],
      ["it does not end", [chunk(0, "0123456789ab"), chunk(1, "c")]],
    ];
    for (const [what, row] of broken) {
      const one = session();
      const answers = row.map((each) => said(chunks.take(one, each, false)));
      expect(
        answers.map(([verdict]) => verdict),
        what,
      ).toContain("START_OVER");
      expect(chunks.heldBytes, what).toBe(0);
      expect(said(chunks.take(one, chunk(0, "a"), false)), what).toEqual(["RECEIVED", 1]);
      chunks.ended(one);
    }
    expect(chunks.heldBytes).toBe(0);
  });

  it("begins anew with its first chunk, whatever came before", () => {
    const { desk: chunks } = desk();
    const one = session();
    chunks.take(one, chunk(0, "wrong"), false);
    for (const [index, data] of ["true", "    ", "    "].entries()) {
      expect(said(chunks.take(one, chunk(index, data), false))).toEqual(["RECEIVED", index + 1]);
    }
    expect(chunks.heldBytes).toBe(12);
    const whole = chunks.whole(one, receipt, named("true        ", 3));
    expect("text" in whole ? whole.kind : whole).toBe("json");
  });

  it("is given to no receipt that names other bytes, another number, or another digest", () => {
    const text = "0123456789ab";
    const right = named(text, 1);
    for (const wrong of [
      { ...right, sha256: named("x", 1).sha256 },
      { ...right, count: 2 },
      { ...right, bytes: 11 },
      { ...right, count: 0, bytes: 0, sha256: "" },
    ]) {
      const { desk: chunks } = desk();
      const one = session();
      chunks.take(one, chunk(0, text), false);
      expect(said(chunks.whole(one, receipt, wrong) as BrokerFrame)).toEqual(["START_OVER", 0]);
      expect(chunks.heldBytes).toBe(0);
    }
    const { desk: chunks } = desk();
    const one = session();
    chunks.take(one, chunk(0, text), false);
    expect("frame" in chunks.whole(one, { ...receipt, digest: "e".repeat(64) }, right)).toBe(true);
    expect("frame" in chunks.whole(one, receipt, right)).toBe(true);
  });

  it("says whether it is JSON, also over the borders of chunks", () => {
    for (const [parts, kind] of [
      [['{"a":"\\u00', 'e9"', "}"], "json"],
      [['{"a":', "}"], "not_json"],
      [["[".repeat(600), "]".repeat(600)], "too_deep"],
    ] as const) {
      const { desk: chunks } = desk();
      const one = session();
      const text = parts.join("");
      for (const [index, data] of parts.entries()) chunks.take(one, chunk(index, data, { totalBytes: text.length }), false);
      const whole = chunks.whole(one, receipt, named(text, parts.length));
      expect("text" in whole ? whole.kind : whole).toBe(kind);
    }
  });

  it("is not mixed up with one of the same grant on another session", () => {
    const { desk: chunks } = desk();
    const [one, two] = [session(), session()];
    chunks.take(one, chunk(0, "true"), false);
    expect(said(chunks.take(two, chunk(1, "true"), false))).toEqual(["START_OVER", 0]);
    expect(said(chunks.take(one, chunk(1, "true"), false))).toEqual(["RECEIVED", 2]);
  });

  it("is not needed for a receipt that is here already", () => {
    const { desk: chunks } = desk();
    const answer = said(chunks.take(session(), chunk(0, "a"), true));
    expect(answer[0]).toBe("RECEIVED");
    expect(answer[1]).toBeGreaterThan(1_000);
    expect(chunks.heldBytes).toBe(0);
  });
});

describe("room for chunks", () => {
  const MIB = 1_048_576;
  const large = (grantId: string, totalBytes = RESULT_CHUNKED_BYTES_MAX) => chunk(0, "a", { grantId, totalBytes });

  it("is bounded for a session and for all of them, by what first chunks announce", () => {
    const { desk: chunks } = desk();
    const one = session();
    const perSession = SESSION_CHUNKS_BYTES_MAX / RESULT_CHUNKED_BYTES_MAX;
    for (let row = 0; row < perSession; row += 1) expect(said(chunks.take(one, large(`entry_${row}`), false))[0]).toBe("RECEIVED");
    expect(said(chunks.take(one, large("entry_more"), false))[0]).toBe("BUSY");
    for (let held = SESSION_CHUNKS_BYTES_MAX; held < CHUNKS_BYTES_MAX; held += RESULT_CHUNKED_BYTES_MAX) {
      expect(said(chunks.take(session(), large("entry_1"), false))[0]).toBe("RECEIVED");
    }
    expect(said(chunks.take(session(), large("entry_1", 1), false))[0]).toBe("BUSY");
    expect(chunks.heldBytes).toBe(CHUNKS_BYTES_MAX);
    // Rows that go on are not in the way of their own next chunks.
    expect(said(chunks.take(one, chunk(1, "b", { grantId: "entry_0", totalBytes: RESULT_CHUNKED_BYTES_MAX }), false))).toEqual([
      "RECEIVED",
      2,
    ]);
    chunks.ended(one);
    expect(said(chunks.take(session(), large("entry_1"), false))[0]).toBe("RECEIVED");
  });

  it("is taken from a row that stands still, but from none that moves", () => {
    const { desk: chunks, pass } = desk();
    const [still, moving] = [session(), session()];
    chunks.take(still, large("entry_1"), false);
    for (let row = 0; row < CHUNKS_BYTES_MAX / RESULT_CHUNKED_BYTES_MAX - 1; row += 1)
      chunks.take(row === 0 ? moving : session(), large("entry_1"), false);
    pass(15_001);
    chunks.take(moving, chunk(1, "b", { totalBytes: RESULT_CHUNKED_BYTES_MAX }), false);
    expect(said(chunks.take(session(), large("entry_1"), false))[0]).toBe("RECEIVED");
    expect(said(chunks.take(moving, chunk(2, "c", { totalBytes: RESULT_CHUNKED_BYTES_MAX }), false))).toEqual(["RECEIVED", 3]);
    expect(said(chunks.take(still, chunk(1, "b", { totalBytes: RESULT_CHUNKED_BYTES_MAX }), false))[0]).toBe("START_OVER");
  });

  it("is given to no result over the limit, at the byte", () => {
    const { desk: chunks } = desk(2 * MIB);
    expect(said(chunks.take(session(), large("entry_1", 2 * MIB), false))[0]).toBe("RECEIVED");
    expect(said(chunks.take(session(), large("entry_1", 2 * MIB + 1), false))[0]).toBe("REFUSED");
    expect(chunks.heldBytes).toBe(2 * MIB);
  });
});

describe("a chunk of a wrong form", () => {
  it("is a fault of its frame, and harms no row", () => {
    const { desk: chunks } = desk();
    const one = session();
    chunks.take(one, chunk(0, "a"), false);
    const wrong: readonly (readonly [RegExp, ResultChunk])[] = [
      [/call_id/, chunk(1, "b", { callId: "" })],
      [/grant_id/, chunk(1, "b", { grantId: "a/b" })],
      [/digest/, chunk(1, "b", { digest: "abc" })],
      [/data: expected 1 to 393216 bytes, got 0/, chunk(1, "")],
      [/data: .*got 393217/, chunk(1, "x".repeat(CHUNK_BYTES_MAX + 1))],
      [/data: .*got 393218/, chunk(1, "é".repeat(CHUNK_BYTES_MAX / 2 + 1))],
    ];
    for (const [message, each] of wrong) expect(said(chunks.take(one, each, false))).toMatch(message);
    expect(said(chunks.take(one, chunk(1, "b"), false))).toEqual(["RECEIVED", 2]);
    expect(said(chunks.take(session(), chunk(0, "x".repeat(CHUNK_BYTES_MAX), { totalBytes: CHUNK_BYTES_MAX }), false))[0]).toBe("RECEIVED");
  });
});
