import { createHash } from "node:crypto";
import { afterEach, describe, expect, it } from "vitest";
import { allow, forbid, type ToolContext, ToolError } from "./index.js";
import { deferred, serve, stopRunners, work } from "./runner.test.kit.js";

afterEach(stopRunners);

/** Throws what is no Error. */
function raise(value: unknown): never {
  throw value;
}

/** An object that throws when this property is read. */
const trapped = (name: string) =>
  new Proxy(
    {},
    {
      get(_target, property) {
        if (property === name) throw new Error("trap");
        return undefined;
      },
    },
  );

const failed = (outcome: unknown) =>
  (outcome as { $case: "failed"; value: { code: string; message: string; retryable: boolean; retryAfterMs: number } }).value;

describe("what a handler sees", () => {
  it("is the grant: ids, fence, key, subject, agent, scopes, deadline", async () => {
    const seen = deferred<ToolContext>();
    const { session } = await serve({ tools: [work((_args, ctx) => seen.resolve(ctx))] });
    const before = Date.now();
    const grant = session.grant({
      tool: "work",
      attempt: 3,
      fence: 77,
      subject: "user_42",
      agent: "helper",
      idempotencyKey: "once",
      scopes: ["orders:write"],
      token: "signed",
      traceparent: "00-a-b-01",
      session: "ses_1",
      toolset: "shop",
      toolsetVersion: 4,
      remainingMs: 60_000,
    });
    const ctx = await seen.promise;
    expect(ctx).toMatchObject({
      callId: grant.callId,
      tool: "work",
      version: "1",
      attempt: 3,
      fence: 77,
      idempotencyKey: "once",
      subject: "user_42",
      agent: "helper",
      scopes: ["orders:write"],
      grant: { grantId: grant.grantId, toolset: "shop", toolsetVersion: 4, session: "ses_1", token: "signed", traceparent: "00-a-b-01" },
    });
    expect(Math.abs(ctx.deadline.getTime() - before - 60_000)).toBeLessThan(5_000);
    expect(ctx.signal.aborted).toBe(false);
  });

  it("says started before the handler's first line is over, with the receipt's start and end", async () => {
    const { session } = await serve({ tools: [work(() => "done")] });
    const grant = session.grant({ tool: "work" });
    const started = await session.next("started");
    const receipt = await session.next("receipt");
    expect(started).toMatchObject({ callId: grant.callId, grantId: grant.grantId, fence: grant.fence, atUnixMs: receipt.startedAtUnixMs });
    expect(receipt.finishedAtUnixMs).toBeGreaterThanOrEqual(receipt.startedAtUnixMs);
    expect(receipt.digest).toBe(createHash("sha256").update('{"outcome":"succeeded","result":"done"}').digest("hex"));
  });
});

describe("what comes of a handler (R7)", () => {
  it("that returns nothing is null", async () => {
    const { session } = await serve({ tools: [work(() => undefined)] });
    session.grant({ tool: "work" });
    expect((await session.next("receipt")).outcome).toEqual({ $case: "succeeded", value: { resultJson: "null" } });
  });

  it.each<[string, () => unknown, string, string]>([
    [
      "throws an Error",
      () => {
        throw new TypeError("no order");
      },
      "handler_error",
      "TypeError: no order",
    ],
    ["rejects", () => Promise.reject(new Error("later")), "handler_error", "Error: later"],
    [
      "throws a text",
      () => {
        raise("plain");
      },
      "handler_error",
      "string: plain",
    ],
    [
      "throws undefined",
      () => {
        raise(undefined);
      },
      "handler_error",
      "undefined: a value of type undefined was thrown",
    ],
    [
      "throws null",
      () => {
        raise(null);
      },
      "handler_error",
      "null: a value of type null was thrown",
    ],
    ["returns a BigInt", () => ({ total: 1n }), "result_not_json", "/total"],
    ["returns a Map", () => new Map(), "result_not_json", "a Map at the root"],
    ["returns a thenable that throws", () => trapped("then"), "handler_error", "Error: trap"],
    [
      "throws an error whose message throws",
      () => {
        throw Object.defineProperty(new Error("x"), "message", {
          get() {
            throw new Error("deep");
          },
        });
      },
      "handler_error",
      "cannot be read",
    ],
    [
      "throws a failure of the business",
      () => {
        throw new ToolError("order_unknown", "no such order");
      },
      "order_unknown",
      "no such order",
    ],
    [
      "throws one with a code of a wrong form",
      () => {
        throw new ToolError("Order Unknown!", "no such order");
      },
      "handler_error",
      "Order Unknown!: no such order",
    ],
  ])("that %s is a failure with a code and a message, and no stack", async (_name, run, code, message) => {
    const { session } = await serve({ tools: [work(run as () => unknown)] });
    session.grant({ tool: "work" });
    const failure = failed((await session.next("receipt")).outcome);
    expect(failure.code).toBe(code);
    expect(failure.message).toContain(message);
    expect(failure.message).not.toContain("    at ");
    expect(failure.retryable).toBe(false);
  });

  it("that throws a ToolError of another copy of this package is a failure of the business all the same", async () => {
    const address = new URL("./core/errors.js?copy", import.meta.url).href;
    const copy = (await import(/* @vite-ignore */ address)) as typeof import("./core/errors.js");
    expect(copy.ToolError).not.toBe(ToolError);
    const { session } = await serve({
      tools: [
        work(() => {
          throw new copy.ToolError("order_unknown", "no such order");
        }),
      ],
    });
    session.grant({ tool: "work" });
    expect(failed((await session.next("receipt")).outcome).code).toBe("order_unknown");
  });

  it("that throws a retryable ToolError says so, with time and details (X7)", async () => {
    const details = [{ path: "/order", expected: "an open order", actual: "a closed one" }];
    const { session } = await serve({
      tools: [
        work(() => {
          throw new ToolError("busy", "later", { retryable: true, retryAfterSeconds: 2.5, details });
        }),
      ],
    });
    session.grant({ tool: "work" });
    expect(failed((await session.next("receipt")).outcome)).toMatchObject({ code: "busy", retryable: true, retryAfterMs: 2_500, details });
  });

  it("that throws a ToolError with absurd numbers still makes a frame", async () => {
    const { session } = await serve({
      tools: [
        work(() => {
          throw new ToolError("busy", "x".repeat(100_000), { retryable: true, retryAfterSeconds: Number.POSITIVE_INFINITY });
        }),
      ],
    });
    session.grant({ tool: "work" });
    const failure = failed((await session.next("receipt")).outcome);
    expect(failure.retryAfterMs).toBe(0);
    expect(failure.message.length).toBeLessThan(10_000);
  });

  it("that returns more than the limit is a typed, non-retryable failure naming tool, bytes and limit, at the edge (R9)", async () => {
    const { session } = await serve({ tools: [work((args) => "x".repeat((args as { length: number }).length))] });
    session.grant({ tool: "work", argumentsJson: '{"length":98}', maxResultBytes: 100 });
    expect((await session.next("receipt")).outcome?.$case).toBe("succeeded");
    session.grant({ tool: "work", argumentsJson: '{"length":99}', maxResultBytes: 100 });
    const failure = failed((await session.next("receipt")).outcome);
    expect(failure).toMatchObject({ code: "result_too_large", retryable: false });
    expect(failure.message).toContain('"work"');
    expect(failure.message).toContain("101 bytes");
    expect(failure.message).toContain("100 bytes");
  });

  it("that returns more than the broker's limit fails, whatever the grant allows (R9)", async () => {
    const limits = { frameBytes: 1_048_576, resultBytes: 50, progressBytes: 16_384, slots: 16, chunkedResultBytes: 0, chunkBytes: 0 };
    const { session } = await serve({ tools: [work(() => "x".repeat(60))] }, { limits });
    session.grant({ tool: "work", maxResultBytes: 1_000 });
    expect(failed((await session.next("receipt")).outcome).code).toBe("result_too_large");
  });

  it("that fits its limit but no frame still ends in a receipt that arrives", async () => {
    const limits = {
      frameBytes: 1_048_576,
      resultBytes: 4_000_000,
      progressBytes: 16_384,
      slots: 16,
      chunkedResultBytes: 0,
      chunkBytes: 0,
    };
    const { session } = await serve({ tools: [work(() => "x".repeat(2_000_000))] }, { limits });
    session.grant({ tool: "work", maxResultBytes: 4_000_000 });
    const receipt = await session.next("receipt");
    expect(failed(receipt.outcome).code).toBe("result_too_large");
    session.acknowledge(receipt);
  });

  it("makes one receipt, whatever it does after its end", async () => {
    const late = deferred<ToolContext>();
    const { session, events } = await serve({
      tools: [
        work((_args, ctx) => {
          late.resolve(ctx);
          return new Promise((resolve, reject) => {
            resolve(1);
            resolve(2);
            reject(new Error("third"));
          });
        }),
      ],
    });
    session.grant({ tool: "work" });
    session.acknowledge(await session.next("receipt"));
    (await late.promise).progress({ text: "after the end" });
    await session.settleFrames();
    expect(session.all("receipt")).toHaveLength(1);
    expect(session.all("progress")).toHaveLength(0);
    expect(events.some(({ event, fields }) => event === "progress_dropped" && fields["reason"] === "handler_ended")).toBe(true);
  });

  it("is told to a test by one call of the fake broker", async () => {
    const { session } = await serve({ tools: [work((args) => args)] });
    const receipts = await Promise.all([1, 2, 3].map((n) => session.call({ tool: "work", argumentsJson: String(n) })));
    expect(receipts.map(({ outcome }) => outcome)).toEqual(
      ["1", "2", "3"].map((resultJson) => ({ $case: "succeeded", value: { resultJson } })),
    );
  });

  it("never shows payloads in the log (I10), nor the product's reason for forbidding", async () => {
    const { session, events } = await serve({
      tools: [
        work((args, ctx) => {
          ctx.progress({ data: { "secret-key": 1n } });
          throw new Error(`secret-message ${JSON.stringify(args)}`);
        }),
      ],
      authorize: (ctx) => (ctx.attempt === 1 ? allow() : forbid("secret-reason")),
    });
    session.grant({ tool: "work", argumentsJson: '{"card":"secret-argument"}' });
    await session.next("receipt");
    session.grant({ tool: "work", attempt: 2 });
    await session.next("decline");
    expect(JSON.stringify(events)).not.toContain("secret");
  });
});

describe("progress (X6)", () => {
  it("reaches the broker in order with text, percentage and data", async () => {
    const { session } = await serve({
      tools: [
        work((_args, ctx) => {
          ctx.progress({ text: "half", percentage: 50, data: { rows: [1] } });
          ctx.progress({ percentage: 180 });
        }),
      ],
    });
    session.grant({ tool: "work" });
    await session.next("receipt");
    expect(session.all("progress")).toMatchObject([
      { text: "half", percentage: 50, dataJson: '{"rows":[1]}' },
      { text: "", percentage: 100, dataJson: "" },
    ]);
  });

  it("is dropped with a reason when it is over 16 KiB, not JSON or nonsense, and the handler goes on", async () => {
    const { session, events } = await serve({
      tools: [
        work((_args, ctx) => {
          ctx.progress({ text: "x".repeat(16_384) });
          ctx.progress({ text: "x".repeat(16_385) });
          ctx.progress({ data: { n: 1n } });
          ctx.progress(undefined as never);
          ctx.progress({ text: Symbol("x") } as never);
          ctx.progress(trapped("text"));
          return "went on";
        }),
      ],
    });
    session.grant({ tool: "work" });
    expect((await session.next("receipt")).outcome).toEqual({ $case: "succeeded", value: { resultJson: '"went on"' } });
    expect(session.all("progress").map(({ text }) => text.length)).toEqual([16_384]);
    expect(events.filter(({ event }) => event === "progress_dropped").map(({ fields }) => fields["reason"])).toEqual([
      "too_large",
      "not_json",
      "empty",
      "text_not_a_string",
      "not_json",
    ]);
  });
});
