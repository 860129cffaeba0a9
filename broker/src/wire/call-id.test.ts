import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { callIdFor, requestHash } from "./call-id.js";

describe("call ids", () => {
  it("are the same for the same application, agent and key, and differ where any of them does (X2)", () => {
    const id = callIdFor("default", "agent", "key");
    expect(id).toMatch(/^call_[a-z2-7]{26}$/);
    expect(callIdFor("default", "agent", "key")).toBe(id);
    // Boundaries between the parts cannot be moved.
    const others = [
      callIdFor("default", "agentkey", ""),
      callIdFor("defaultagent", "", "key"),
      callIdFor("default", "agent", "key2"),
      callIdFor("other", "agent", "key"),
    ];
    expect(new Set([id, ...others]).size).toBe(5);
  });
});

describe("the hash of a request", () => {
  it("does not depend on the order of fields, nor on wait_seconds, and on everything else", () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.jsonValue()), fc.integer(), (args, other) => {
        const body = { toolset: "shop", tool: "refund", arguments: args as never };
        const turned = {
          arguments: Object.fromEntries(Object.entries(args).reverse()) as never,
          tool: "refund",
          toolset: "shop",
          wait_seconds: 7,
        };
        expect(requestHash(turned)).toBe(requestHash(body));
        expect(requestHash({ ...body, arguments: { ...args, "another field": other } as never })).not.toBe(requestHash(body));
        expect(requestHash({ ...body, timeout_seconds: 5 })).not.toBe(requestHash(body));
      }),
    );
  });
});
