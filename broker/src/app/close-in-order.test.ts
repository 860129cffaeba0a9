import { expect, it } from "vitest";
import type { LogFields } from "../domain/ports/log.js";
import { closeInOrder } from "./close-in-order.js";
import { silentLog } from "./logs.js";

function recorder() {
  const lines: { readonly event: string; readonly fields: LogFields }[] = [];
  const log = { ...silentLog, warn: (event: string, fields: LogFields = {}) => void lines.push({ event, fields }) };
  return { lines, log };
}

it("closes the parts of a broker in their order", async () => {
  const { lines, log } = recorder();
  const closed: string[] = [];
  const part = (name: string) => ({ part: name, close: async () => void closed.push(name) });
  await closeInOrder([part("wire"), part("index"), part("ledger")], 1_000, log);
  expect(closed).toEqual(["wire", "index", "ledger"]);
  expect(lines).toEqual([]);
});

it("goes on after a part that fails, at once or later, and says which it was", async () => {
  const { lines, log } = recorder();
  const closed: string[] = [];
  await closeInOrder(
    [
      {
        part: "wire",
        close: () => {
          throw new Error("thrown");
        },
      },
      { part: "bus", close: () => Promise.reject(new Error("rejected")) },
      { part: "ledger", close: () => void closed.push("ledger") },
    ],
    1_000,
    log,
  );
  expect(closed).toEqual(["ledger"]);
  expect(lines).toEqual([
    { event: "close_failed", fields: { part: "wire", error: "thrown" } },
    { event: "close_failed", fields: { part: "bus", error: "rejected" } },
  ]);
});

it("waits for no part longer than for all of them together", async () => {
  const { lines, log } = recorder();
  const closed: string[] = [];
  const startedAt = performance.now();
  await closeInOrder(
    [
      { part: "wire", close: () => new Promise(() => undefined) },
      { part: "bus", close: () => new Promise(() => undefined) },
      { part: "ledger", close: () => void closed.push("ledger") },
    ],
    100,
    log,
  );
  expect(performance.now() - startedAt).toBeLessThan(1_000);
  expect(closed).toEqual(["ledger"]);
  expect(lines.map(({ event, fields }) => `${event} ${String(fields["part"])}`)).toEqual(["close_late wire", "close_late bus"]);
});
