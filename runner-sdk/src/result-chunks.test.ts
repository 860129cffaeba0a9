import { createHash } from "node:crypto";
import { ChunkVerdict, type ResultChunk } from "@toolrunner/proto";
import { afterEach, describe, expect, it } from "vitest";
import { piecesOf } from "./core/result-chunks.js";
import { memoryJournal } from "./index.js";
import { serve, stopRunners, until, work } from "./runner.test.kit.js";
import type { FakeSession } from "./testing.js";

afterEach(stopRunners);

const CHUNK = 400_000;
const LIMITS = {
  frameBytes: 1_048_576,
  resultBytes: 983_040,
  progressBytes: 16_384,
  slots: 1_024,
  chunkedResultBytes: 4_000_000,
  chunkBytes: CHUNK,
};
const LARGE = "x".repeat(1_499_998);
const TEXT = JSON.stringify(LARGE);
const CHUNKS = Math.ceil(TEXT.length / 393_216);

function answer(
  session: FakeSession,
  { callId, grantId, digest }: ResultChunk,
  verdict: ChunkVerdict,
  more: { received?: number; retryAfterMs?: number; limitBytes?: number } = {},
): void {
  const said = {
    callId,
    grantId,
    digest,
    verdict,
    received: more.received ?? 0,
    retryAfterMs: more.retryAfterMs ?? 0,
    limitBytes: more.limitBytes ?? 0,
    message: "",
  };
  session.send({ $case: "chunkAnswer", value: said });
}

/** Takes all chunks of one result, each answered at once, and gives their text. */
async function takeAll(session: FakeSession): Promise<string> {
  let text = "";
  for (let index = 0; index < CHUNKS; index += 1) {
    const chunk = await session.next("resultChunk");
    expect([chunk.index, chunk.totalBytes]).toEqual([index, TEXT.length]);
    text += chunk.data;
    answer(session, chunk, ChunkVerdict.RECEIVED, { received: index + 1 });
  }
  return text;
}

describe("a result that is too large for one frame (L7, R9)", () => {
  it("goes in chunks, and then the receipt names them", async () => {
    const { session } = await serve({ tools: [work(() => LARGE)] }, { limits: LIMITS });
    session.grant({ tool: "work", maxResultBytes: 4_000_000 });
    expect((await takeAll(session)) === TEXT).toBe(true);
    const receipt = await session.next("receipt");
    const sha256 = createHash("sha256").update(TEXT).digest("hex");
    expect(receipt.outcome).toEqual({
      $case: "succeeded",
      value: { resultJson: "", chunks: { count: CHUNKS, bytes: TEXT.length, sha256 } },
    });
    expect(receipt.digest).toBe(createHash("sha256").update(`{"outcome":"succeeded","result":${TEXT}}`).digest("hex"));
    session.acknowledge(receipt);
    await session.settleFrames();
    expect(await session.ping(7)).toEqual([]);
  });

  it("sends no more than four chunks that were not answered, and goes on as they are", async () => {
    const large = "y".repeat(3_000_000);
    const { session } = await serve({ tools: [work(() => large)] }, { limits: { ...LIMITS, chunkBytes: 100_000 } });
    session.grant({ tool: "work", maxResultBytes: 4_000_000 });
    const chunks = [
      await session.next("resultChunk"),
      await session.next("resultChunk"),
      await session.next("resultChunk"),
      await session.next("resultChunk"),
    ];
    await session.settleFrames();
    expect(session.all("resultChunk")).toHaveLength(4);
    answer(session, chunks[0] as ResultChunk, ChunkVerdict.RECEIVED, { received: 2 });
    await until("two more", () => session.all("resultChunk").length === 6);
    await session.settleFrames();
    expect(session.all("resultChunk")).toHaveLength(6);
    expect(session.all("receipt")).toEqual([]);
  });

  it("is sent again from its first chunk when the broker says so, at once or after a while", async () => {
    for (const verdict of [ChunkVerdict.START_OVER, ChunkVerdict.BUSY]) {
      const { session, events } = await serve({ tools: [work(() => LARGE)] }, { limits: LIMITS });
      session.grant({ tool: "work", maxResultBytes: 4_000_000 });
      const first = await session.next("resultChunk");
      await session.next("resultChunk");
      const taken = session.all("resultChunk").length;
      answer(session, first, verdict, { retryAfterMs: 20 });
      await until("the first chunk again", () =>
        session
          .all("resultChunk")
          .slice(taken)
          .some(({ index }) => index === 0),
      );
      expect(events.filter(({ event }) => event === "result_chunks_again")).toHaveLength(1);
      expect(session.all("receipt")).toEqual([]);
      await stopRunners();
    }
  });

  it("is not sent at all where the broker has it, or its receipt, already", async () => {
    const { session } = await serve({ tools: [work(() => LARGE)] }, { limits: LIMITS });
    session.grant({ tool: "work", maxResultBytes: 4_000_000 });
    answer(session, await session.next("resultChunk"), ChunkVerdict.RECEIVED, { received: 0xffff_ffff });
    expect((await session.next("receipt")).outcome?.$case).toBe("succeeded");
  });

  it("fails with a typed error when the broker refuses it, once and for all", async () => {
    const { session } = await serve({ tools: [work(() => LARGE)] }, { limits: LIMITS });
    session.grant({ tool: "work", maxResultBytes: 4_000_000 });
    answer(session, await session.next("resultChunk"), ChunkVerdict.REFUSED, { limitBytes: 1_000_000 });
    const receipt = await session.next("receipt");
    expect(receipt.outcome).toMatchObject({ $case: "failed", value: { code: "result_too_large", retryable: false } });
    expect(JSON.stringify(receipt.outcome)).toContain("1500000 bytes, over the limit of 1000000 bytes");
  });

  it("fails before anything is sent where it is over the limit of grant or session (R9)", async () => {
    for (const [maxResultBytes, chunkedResultBytes] of [
      [1_499_999, 4_000_000],
      [4_000_000, 1_499_999],
    ] as const) {
      const { session } = await serve({ tools: [work(() => LARGE)] }, { limits: { ...LIMITS, chunkedResultBytes } });
      session.grant({ tool: "work", maxResultBytes });
      expect((await session.next("receipt")).outcome).toMatchObject({ $case: "failed", value: { code: "result_too_large" } });
      expect(session.all("resultChunk")).toEqual([]);
      await stopRunners();
    }
  });

  it("fails with a typed error at a broker that takes no chunks, also when another one granted it (R9)", async () => {
    const { session, broker } = await serve({ tools: [work(() => LARGE)] }, { limits: LIMITS });
    session.grant({ tool: "work", maxResultBytes: 4_000_000 });
    await session.next("resultChunk");
    session.sever();
    const old = await broker.nextSession();
    await old.welcome();
    expect((await old.next("receipt")).outcome).toMatchObject({ $case: "failed", value: { code: "result_too_large", retryable: false } });
    expect(old.all("resultChunk")).toEqual([]);
  });

  it("is sent again, whole, on the next session (I7)", async () => {
    const { session, broker } = await serve({ tools: [work(() => LARGE)], journal: memoryJournal() }, { limits: LIMITS });
    session.grant({ tool: "work", maxResultBytes: 4_000_000 });
    answer(session, await session.next("resultChunk"), ChunkVerdict.RECEIVED, { received: 1 });
    session.sever();
    const next = await broker.nextSession();
    await next.welcome({ limits: LIMITS });
    expect((await takeAll(next)) === TEXT).toBe(true);
    const receipt = await next.next("receipt");
    expect(receipt.outcome?.$case).toBe("succeeded");
    next.acknowledge(receipt);
  });

  it("waits for the one before it, so that a session needs room for one", async () => {
    const { session } = await serve({ tools: [work(() => LARGE)] }, { limits: LIMITS });
    session.grant({ tool: "work", maxResultBytes: 4_000_000 });
    session.grant({ tool: "work", maxResultBytes: 4_000_000 });
    const first = await takeAll(session);
    const grants = new Set(
      session
        .all("resultChunk")
        .slice(0, CHUNKS)
        .map(({ grantId }) => grantId),
    );
    expect([first.length, grants.size]).toEqual([TEXT.length, 1]);
    await takeAll(session);
    await session.next("receipt");
    await session.next("receipt");
  });

  it("takes no harm from answers that it did not ask for", async () => {
    const { session } = await serve({ tools: [work(() => LARGE)] }, { limits: LIMITS });
    session.grant({ tool: "work", maxResultBytes: 4_000_000 });
    const chunk = await session.next("resultChunk");
    answer(session, { ...chunk, grantId: "another" }, ChunkVerdict.REFUSED);
    answer(session, { ...chunk, digest: "e".repeat(64) }, ChunkVerdict.START_OVER);
    answer(session, chunk, ChunkVerdict.UNSPECIFIED);
    answer(session, chunk, ChunkVerdict.RECEIVED, { received: 1 });
    for (let index = 1; index < CHUNKS; index += 1)
      answer(session, await session.next("resultChunk"), ChunkVerdict.RECEIVED, { received: index + 1 });
    expect((await session.next("receipt")).outcome?.$case).toBe("succeeded");
  });
});

describe("the pieces of a text", () => {
  it("are the text, none over the limit, no character in two", () => {
    for (const unit of ["x", "é", "字", "💩", "a💩é字"]) {
      const text = unit.repeat(1_000);
      for (const limit of [4, 5, 7, 100]) {
        const pieces = piecesOf(text, limit).map(({ from, to }) => text.slice(from, to));
        expect(pieces.join("") === text).toBe(true);
        for (const piece of pieces) {
          expect(Buffer.byteLength(piece)).toBeLessThanOrEqual(limit);
          // Half a character does not come back from UTF-8.
          expect(Buffer.from(piece).toString() === piece).toBe(true);
        }
      }
    }
    expect(piecesOf("", 10)).toEqual([]);
  });
});
