import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { FairQueue, type Priority } from "./fair-queue.js";

interface Item {
  readonly id: number;
  readonly priority: Priority;
  readonly subject: string | null;
}

const items = fc.array(
  fc.record({
    priority: fc.constantFrom<Priority>("interactive", "background"),
    subject: fc.constantFrom("a", "b", "c", null),
  }),
  { maxLength: 40 },
);

function filled(given: readonly Omit<Item, "id">[]): { readonly queue: FairQueue<Item>; readonly all: readonly Item[] } {
  const queue = new FairQueue<Item>();
  const all = given.map((each, id) => ({ id, ...each }));
  for (const item of all) {
    queue.add(item, item);
  }
  return { queue, all };
}

function served(queue: FairQueue<Item>): Item[] {
  const order: Item[] = [];
  for (let next = queue.next; next !== undefined; next = queue.next) {
    order.push(next);
    queue.serve(next);
  }
  return order;
}

describe("what waits in a fair order (X8)", () => {
  it("is served once each, interactive before background, of one subject the oldest first", () => {
    fc.assert(
      fc.property(items, (given) => {
        const { queue, all } = filled(given);
        const order = served(queue);
        expect(order.map(({ id }) => id).sort((a, b) => a - b)).toEqual(all.map(({ id }) => id));
        expect(queue.size).toBe(0);
        const firstBackground = order.findIndex(({ priority }) => priority === "background");
        expect(firstBackground === -1 || order.slice(firstBackground).every(({ priority }) => priority === "background")).toBe(true);
        for (const priority of ["interactive", "background"] as const) {
          for (const subject of ["a", "b", "c", null]) {
            const ids = order.filter((item) => item.priority === priority && item.subject === subject).map(({ id }) => id);
            expect(ids).toEqual([...ids].sort((a, b) => a - b));
          }
        }
      }),
    );
  });

  it("gives each subject that waits one turn in each round, however much another one brings", () => {
    fc.assert(
      fc.property(items, (given) => {
        const { queue } = filled(given.map((each) => ({ ...each, priority: "interactive" as const })));
        const order = served(queue);
        for (const subject of new Set(order.map((item) => item.subject))) {
          const turns = order.flatMap((item, index) => (item.subject === subject ? [index] : []));
          turns.slice(1).forEach((turn, at) => {
            const between = order.slice((turns[at] ?? 0) + 1, turn).map((item) => item.subject);
            expect(new Set(between).size).toBe(between.length);
          });
        }
      }),
    );
  });

  it("keeps these promises when some come, go and are served in between, and lists what it would serve", () => {
    const steps = fc.array(
      fc.oneof(
        fc.record({
          kind: fc.constant("add" as const),
          subject: fc.constantFrom("a", "b", "c"),
          priority: fc.constantFrom<Priority>("interactive", "background"),
        }),
        fc.record({ kind: fc.constant("serve" as const) }),
        fc.record({ kind: fc.constant("remove" as const), at: fc.nat(20) }),
      ),
      { maxLength: 60 },
    );
    fc.assert(
      fc.property(steps, (all) => {
        const queue = new FairQueue<Item>();
        const waiting = new Set<Item>();
        /** Turns of others since a subject that waits all the time was served. */
        const passed = new Map<string | null, (string | null)[]>();
        let id = 0;
        for (const step of all) {
          if (step.kind === "add") {
            id += 1;
            const item = { id, subject: step.subject, priority: step.priority };
            queue.add(item, item);
            queue.add(item, item);
            waiting.add(item);
          } else if (step.kind === "remove") {
            const item = [...waiting][step.at];
            if (item !== undefined) {
              queue.remove(item);
              waiting.delete(item);
            }
          } else {
            const item = queue.next;
            expect(item === undefined).toBe(waiting.size === 0);
            if (item !== undefined) {
              expect([...queue][0]).toBe(item);
              expect([...waiting].some((other) => other.priority === "interactive") ? item.priority : "interactive").toBe("interactive");
              queue.serve(item);
              waiting.delete(item);
              passed.set(item.subject, []);
              for (const subject of new Set(
                [...waiting].filter(({ priority }) => priority === item.priority).map((other) => other.subject),
              )) {
                if (subject !== item.subject) {
                  const seen = passed.get(subject) ?? [];
                  seen.push(item.subject);
                  passed.set(subject, seen);
                }
              }
            }
          }
          for (const subject of ["a", "b", "c"]) {
            // A subject whose wait is interrupted, or that waits at two priorities, starts over.
            const own = [...waiting].filter((item) => item.subject === subject);
            if (own.length === 0 || new Set([...waiting].map(({ priority }) => priority)).size > 1) {
              passed.delete(subject);
            }
            const seen = passed.get(subject) ?? [];
            expect(new Set(seen).size, `${subject} waited while ${seen.join(", ")} were served`).toBe(seen.length);
          }
          expect([...queue].length).toBe(waiting.size);
          expect(queue.size).toBe(waiting.size);
        }
      }),
      { numRuns: 300 },
    );
  });
});
