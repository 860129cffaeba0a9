import { describe, expect, it } from "vitest";
import { BrokerError } from "../../domain/broker-error.js";
import type { CallView } from "../../domain/call-view.js";
import { BATCH_CALLS_MAX, BATCH_CREATIONS_AT_ONCE } from "../../domain/limits.js";
import type { AgentPrincipal } from "../../domain/ports/access.js";
import type { CreateCallBody } from "../../wire/operations.js";
import { createBatch } from "./create-batch.js";
import { CREATE_BATCH } from "./forms.js";

const PRINCIPAL: AgentPrincipal = { kind: "agent", keyId: "key_a", application: "default", scopes: new Set() };
const NOBODY_LEAVES = { aborted: false, addEventListener: () => undefined, removeEventListener: () => undefined };
// A test of the order needs only these two fields.
const viewOf = (id: string, state: CallView["state"]): CallView => ({ id, state }) as CallView;

interface Asked {
  readonly create?: (body: CreateCallBody) => Promise<CallView>;
  readonly get?: (id: string, waitSeconds: number | undefined) => Promise<CallView>;
  readonly now?: () => number;
}

function batch(calls: readonly unknown[], { create, get, now = () => 0 }: Asked, waitSeconds?: number) {
  return createBatch(
    {
      create: (_principal, body) => create?.(body) ?? Promise.resolve(viewOf(String(body.arguments), "queued")),
      get: (_principal, id, { wait_seconds }) => get?.(id, wait_seconds) ?? Promise.reject(new Error("nobody waits")),
    },
    PRINCIPAL,
    { calls, wait_seconds: waitSeconds },
    { read: (item) => item, traceparent: undefined, now },
    NOBODY_LEAVES,
  );
}

const callNo = (number: number, more: object = {}) => ({ toolset: "shop", tool: "refund", arguments: number, ...more });

describe("a batch (X11)", () => {
  it("answers in the order of its list, each call or its own refusal", async () => {
    const answers = await batch(
      [callNo(0), { toolset: "shop" }, callNo(2, { zebra: 1 }), callNo(3), "nonsense", callNo(5, { wait_seconds: 3 })],
      {
        create: async (body) => {
          if (body.arguments === 3) throw new BrokerError("toolset_unknown", "There is no such toolset.");
          return viewOf(String(body.arguments), "queued");
        },
      },
    );
    const said = answers.map((answer) =>
      answer.kind === "call"
        ? answer.view.id
        : answer.error instanceof BrokerError
          ? [answer.error.code, answer.error.details[0]?.path]
          : "?",
    );
    expect(said).toEqual([
      "0",
      ["body_invalid", "/tool"],
      ["field_unknown", "/zebra"],
      ["toolset_unknown", undefined],
      ["body_invalid", ""],
      ["field_unknown", "/wait_seconds"],
    ]);
  });

  it("creates side by side, but never more than its places", async () => {
    let under = 0;
    let most = 0;
    const free: (() => void)[] = [];
    const done = batch(
      Array.from({ length: BATCH_CALLS_MAX }, (_, index) => callNo(index)),
      {
        create: async (body) => {
          under += 1;
          most = Math.max(most, under);
          await new Promise<void>((resolve) => free.push(resolve));
          under -= 1;
          return viewOf(String(body.arguments), "succeeded");
        },
      },
    );
    for (let freed = 0; freed < BATCH_CALLS_MAX; freed += 1) {
      while (free.length === 0) await Promise.resolve();
      // The newest first: an old one that stays away keeps nobody but itself.
      free.pop()?.();
    }
    expect((await done).map((answer) => answer.kind === "call" && answer.view.id)).toEqual(
      Array.from({ length: BATCH_CALLS_MAX }, (_, index) => String(index)),
    );
    expect(most).toBe(BATCH_CREATIONS_AT_ONCE);
  });

  it("creates calls with one ordering key in the order of the list, however long each takes", async () => {
    const begun: unknown[] = [];
    const ended: unknown[] = [];
    await batch(
      [0, 1, 2, 3].map((number) => callNo(number, { ordering_key: number === 1 ? "other" : "lane" })),
      {
        create: async (body) => {
          begun.push(body.arguments);
          for (let turn = 0; turn < 10 - 3 * Number(body.arguments); turn += 1) await Promise.resolve();
          ended.push(body.arguments);
          return viewOf("c", "queued");
        },
      },
    );
    const lane = (list: readonly unknown[]) => list.filter((each) => each !== 1);
    expect([lane(begun), lane(ended)]).toEqual([
      [0, 2, 3],
      [0, 2, 3],
    ]);
  });

  it("waits for all together, once all are created, and only for what has no answer", async () => {
    let nowMs = 0;
    const waits: [string, number | undefined][] = [];
    const answers = await batch(
      [callNo(0), callNo(1), callNo(2)],
      {
        now: () => nowMs,
        create: async (body) => {
          nowMs += 1_000;
          return viewOf(String(body.arguments), body.arguments === 1 ? "succeeded" : "queued");
        },
        get: async (id, seconds) => {
          waits.push([id, seconds]);
          if (id === "2") throw new BrokerError("ledger_away", "Away.");
          return viewOf(id, "failed");
        },
      },
      10,
    );
    expect(waits).toEqual([
      ["0", 7],
      ["2", 7],
    ]);
    // What was accepted is a call, also when its news cannot be had.
    expect(answers.map((answer) => answer.kind === "call" && answer.view.state)).toEqual(["failed", "succeeded", "queued"]);
  });

  it("has 1 to 64 calls, and nothing that it does not know", () => {
    const list = (length: number) => ({ calls: Array.from({ length }, () => 1) });
    expect(CREATE_BATCH.check(list(64))).toEqual(list(64));
    for (const bad of [list(0), list(65), {}, { calls: {} }, { ...list(1), wait_seconds: 61 }, { ...list(1), idempotency_key: "k" }]) {
      expect(() => CREATE_BATCH.check(bad)).toThrow(BrokerError);
    }
  });
});
