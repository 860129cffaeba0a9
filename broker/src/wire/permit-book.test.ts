import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Priority } from "./fair-queue.js";
import { type PermitAsk, PermitBook, type PermitStanding } from "./permit-book.js";

let numbers = 0;
function ask(over: Partial<PermitAsk> = {}): PermitAsk {
  numbers += 1;
  return {
    callId: `call_${numbers}`,
    brokerId: "broker_a",
    tool: "echo",
    priority: "interactive",
    subject: null,
    limits: { binding: { concurrency: 2, queue: 3 }, tool: null },
    atMs: 1,
    ...over,
  };
}

function opened(): PermitBook {
  const book = new PermitBook();
  book.open();
  return book;
}

describe("the book of a binding with limits (X8, B4)", () => {
  it("gives as many permits as there may be, then queues as many as may wait, then refuses and remembers nothing of it", () => {
    const book = opened();
    const answers = Array.from({ length: 7 }, () => book.admit(ask(), true));
    expect(answers).toEqual(["permit", "permit", "queued", "queued", "queued", "refused", "refused"]);
    expect(book.inspect()).toEqual({ held: 2, waiting: 3 });
    expect(book.size).toBe(5);
  });

  it("refuses with a queue of 0 what cannot run at once, and counts what waits for a runner", () => {
    const limits = { binding: { queue: 0 }, tool: null };
    const book = opened();
    expect(book.admit(ask({ limits }), false)).toBe("refused");
    expect(book.admit(ask({ limits }), true)).toBe("permit");
  });

  it("counts each tool by itself, and the binding over all of them", () => {
    const book = opened();
    const limits = { binding: { concurrency: 3 }, tool: { concurrency: 2, queue: 1 } };
    const of = (tool: string): string => book.admit(ask({ tool, limits }), true);
    expect([of("a"), of("a"), of("a"), of("a")]).toEqual(["permit", "permit", "queued", "refused"]);
    expect([of("b"), of("b"), of("b")]).toEqual(["permit", "queued", "refused"]);
  });

  it("gives nothing and refuses nothing before it knows what others hold; what they say counts over the limits", () => {
    const book = new PermitBook();
    const [first, second] = [ask(), ask()];
    expect(book.admit(first, true)).toBe("queued");
    expect(book.acquire(first)).toBe(false);
    for (let n = 0; n < 4; n += 1) {
      book.note(ask({ brokerId: "broker_b" }), "held");
    }
    book.open();
    expect(book.next()).toBeUndefined();
    expect(book.acquire(second)).toBe(false);
    expect(book.inspect()).toEqual({ held: 4, waiting: 2 });
    book.brokerGone("broker_b");
    expect([book.next()?.callId, book.next()?.callId, book.next()]).toEqual([first.callId, second.callId, undefined]);
  });

  it("lets nobody pass those that wait for a permit of the same tool", () => {
    const book = opened();
    const running = [ask(), ask()];
    for (const each of running) {
      book.acquire(each);
    }
    const waiting = ask();
    expect(book.acquire(waiting)).toBe(false);
    book.leave(running[0]?.callId ?? "", "broker_a");
    expect(book.admit(ask(), true)).toBe("queued");
    expect(book.next()).toBe(waiting);
  });

  it("serves interactive before background, and subjects in turn (X8)", () => {
    const book = opened();
    const holder = ask({ limits: { binding: { concurrency: 1 }, tool: null } });
    book.acquire(holder);
    const wait = (callId: string, subject: string, priority: Priority = "interactive"): boolean =>
      book.acquire(ask({ callId, subject, priority, limits: holder.limits }));
    wait("late", "ana", "background");
    for (const n of [1, 2, 3]) {
      wait(`ana_${n}`, "ana");
    }
    wait("ben_1", "ben");
    wait("cleo_1", "cleo");
    const order: string[] = [];
    let held: PermitAsk | undefined = holder;
    for (;;) {
      book.leave(held.callId, held.brokerId);
      held = book.next();
      if (held === undefined) {
        break;
      }
      order.push(held.callId);
    }
    expect(order).toEqual(["ana_1", "ben_1", "cleo_1", "ana_2", "ana_3", "late"]);
  });

  it("believes the broker that drives a call by now, not the one that did", () => {
    const book = opened();
    const call = ask();
    book.acquire(call);
    // A repeat of its creation elsewhere changes nothing, and neither does its end.
    expect(book.admit({ ...call, brokerId: "broker_b" }, true)).toBe("queued");
    book.leave(call.callId, "broker_b");
    expect(book.inspect().held).toBe(1);
    book.note({ ...call, brokerId: "broker_c" }, "held");
    book.leave(call.callId, "broker_a");
    book.brokerGone("broker_a");
    expect(book.inspect().held).toBe(1);
    book.brokerGone("broker_c");
    expect(book.size).toBe(0);
  });

  it("takes the newest saying of the limits, whoever says it first", () => {
    const book = opened();
    const narrow = { binding: { concurrency: 1 }, tool: null };
    const wide = { binding: { concurrency: 3 }, tool: null };
    expect(book.admit(ask({ limits: wide, atMs: 5 }), true)).toBe("permit");
    expect(book.admit(ask({ limits: narrow, atMs: 4 }), true)).toBe("permit");
    expect(book.admit(ask({ limits: narrow, atMs: 6 }), true)).toBe("queued");
  });

  it("drops what a broker does not list, but not what came in since it was asked", () => {
    const book = opened();
    const [gone, kept] = [ask(), ask()];
    book.acquire(gone);
    book.acquire(kept);
    const { newest } = book;
    const fresh = ask();
    book.acquire(fresh);
    book.compare("broker_a", [{ ask: kept, standing: "held" }], newest);
    expect(book.inspect()).toEqual({ held: 1, waiting: 1 });
    expect(book.next()).toBe(fresh);
  });

  it("never gives more permits than the limits, loses nobody and counts right, whatever happens (property)", () => {
    const tools = ["a", "b"] as const;
    const limits = { binding: { concurrency: 3, queue: 6 }, tool: { concurrency: 2, queue: 4 } };
    const step = fc.record({
      what: fc.constantFrom("admit", "admit with runner", "acquire", "queue", "leave", "next"),
      call: fc.nat(12),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 120 }), (steps) => {
        const book = opened();
        const known = new Map<number, PermitStanding>();
        const asks = Array.from({ length: 13 }, (_, n) =>
          ask({
            callId: `c${n}`,
            tool: tools[n % 2] ?? "a",
            subject: `s${n % 3}`,
            priority: n % 5 === 0 ? "background" : "interactive",
            limits,
          }),
        );
        const count = (standing: (s: PermitStanding) => boolean, tool?: string): number =>
          [...known].filter(([n, s]) => standing(s) && (tool === undefined || tools[n % 2] === tool)).length;
        const isHeld = (s: PermitStanding): boolean => s === "held";
        for (const { what, call } of steps) {
          const each = asks[call];
          if (each === undefined) {
            continue;
          }
          if (what.startsWith("admit")) {
            const answer = book.admit(each, what === "admit with runner");
            if (answer === "refused") {
              expect(known.has(call)).toBe(false);
              expect(count((s) => s !== "held") >= 6 || count((s) => s !== "held", each.tool) >= 4).toBe(true);
            } else {
              known.set(call, answer === "permit" ? "held" : "queued");
            }
          } else if (what === "acquire") {
            known.set(call, book.acquire(each) ? "held" : "blocked");
          } else if (what === "queue") {
            book.note(each, "queued");
            known.set(call, "queued");
          } else if (what === "leave") {
            book.leave(each.callId, each.brokerId);
            known.delete(call);
          } else {
            const next = book.next();
            if (next === undefined) {
              const hasRoom = (tool: string): boolean => count(isHeld) < 3 && count(isHeld, tool) < 2;
              expect([...known].some(([n, s]) => s === "blocked" && hasRoom(tools[n % 2] ?? "a"))).toBe(false);
            } else {
              const n = asks.indexOf(next);
              expect(known.get(n)).toBe("blocked");
              known.set(n, "held");
            }
          }
          expect(count(isHeld)).toBeLessThanOrEqual(3);
          for (const tool of tools) {
            expect(count(isHeld, tool)).toBeLessThanOrEqual(2);
          }
          expect(book.inspect()).toEqual({ held: count(isHeld), waiting: count((s) => s !== "held") });
          expect(book.size).toBe(known.size);
        }
      }),
      { numRuns: 300 },
    );
  });
});
