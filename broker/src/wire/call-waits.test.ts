import { describe, expect, it } from "vitest";
import type { EventName } from "../domain/call-view.js";
import { CallWaits } from "./call-waits.js";
import type { DriverAnswer, ProgressOrder } from "./commands.js";
import { Drain } from "./drain.js";
import { CALL_ID, driverStage } from "./driver.test.kit.js";

type Events = Extract<DriverAnswer, { kind: "events" }>;
type Told = readonly [seq: number, event: EventName, order?: readonly [grantId: string, sessionEpoch: number, number: number]];

/** What a driver answers. */
function answer(told: readonly Told[], rest: Partial<Events> = {}): Events {
  const orders = told.map(([, , order]): ProgressOrder | null =>
    order === undefined ? null : { grantId: order[0], sessionEpoch: order[1], number: order[2] },
  );
  const events = told.map(([seq, event, order]) => ({
    type: "event" as const,
    call_id: CALL_ID,
    seq,
    at: "2026-01-01T00:00:00.000Z",
    event,
    data: order === undefined ? {} : { text: order.join(".") },
  }));
  return { kind: "events", events, orders, more: false, settled: false, state: "running", ...rest };
}

/** Waits at a broker where the call's drivers answer `answers` one after another; `asked`: after which numbers they were asked. */
function waitsFor(answers: readonly Events[]) {
  const left = [...answers];
  const asked: number[] = [];
  const waits = new CallWaits({
    driver: () => driverStage().context,
    table: { get: () => undefined },
    drain: new Drain(),
    router: {
      command: async (_callId, command) => {
        asked.push(command.op === "events" ? command.afterSeq : -1);
        return left.shift() ?? { kind: "not_driver" };
      },
    },
  });
  return { waits, asked };
}

async function watched(waits: CallWaits): Promise<string[]> {
  const shown: string[] = [];
  for await (const { seq, event, data } of waits.watch(CALL_ID, 0, new AbortController().signal)) {
    shown.push([seq, event, ...Object.values(data)].join(" "));
  }
  return shown;
}

/** The driver was lost; the next one was told what had been on its way, and what the first had told already. */
const ACROSS_DRIVERS: readonly Events[] = [
  answer([
    [3, "granted"],
    [4, "progress", ["grant_1", 7, 2]],
    [5, "progress", ["grant_1", 7, 3]],
  ]),
  answer([
    [1_004, "progress", ["grant_1", 7, 1]],
    [1_005, "progress", ["grant_1", 7, 3]],
  ]),
  answer([
    [1_006, "progress", ["grant_1", 8, 1]],
    [1_007, "progress", ["grant_1", 7, 9]],
    [1_008, "cancel_requested"],
    [1_009, "progress", ["grant_1", 8, 2]],
  ]),
];
const SETTLED = answer([[1_010, "settled"]], { settled: true, state: "cancelled" });
const IN_ORDER = [
  "3 granted",
  "4 progress grant_1.7.2",
  "5 progress grant_1.7.3",
  "1006 progress grant_1.8.1",
  "1008 cancel_requested",
  "1009 progress grant_1.8.2",
  "1010 settled",
];

describe("a stream of events", () => {
  it("shows no progress late or twice when the call changes its driver meanwhile, and all else (X6)", async () => {
    const { waits, asked } = waitsFor([...ACROSS_DRIVERS, SETTLED]);
    expect(await watched(waits)).toEqual(IN_ORDER);
    // What was not shown is not asked for again.
    expect(asked).toEqual([0, 5, 1_005, 1_009]);
  });

  it("shows the progress of a later grant, whatever its runner's numbers are", async () => {
    const { waits } = waitsFor([
      answer([[4, "progress", ["grant_1", 9, 5]]]),
      answer([
        [5, "retry_scheduled"],
        [6, "granted"],
        [7, "progress", ["grant_2", 2, 1]],
      ]),
      SETTLED,
    ]);
    expect(await watched(waits)).toEqual([
      "4 progress grant_1.9.5",
      "5 retry_scheduled",
      "6 granted",
      "7 progress grant_2.2.1",
      "1010 settled",
    ]);
  });

  it("shows all that a broker tells which says nothing of the order", async () => {
    const { orders: _left, ...older } = answer([
      [4, "progress", ["grant_1", 7, 2]],
      [5, "progress", ["grant_1", 7, 1]],
    ]);
    expect(await watched(waitsFor([older, SETTLED]).waits)).toEqual(["4 progress grant_1.7.2", "5 progress grant_1.7.1", "1010 settled"]);
  });
});

describe("a list of events", () => {
  it("that takes several answers shows no progress late or twice, and ends (X6)", async () => {
    const { waits, asked } = waitsFor([...ACROSS_DRIVERS.map((batch) => ({ ...batch, more: true })), SETTLED]);
    const listed = await waits.list(CALL_ID, 0);
    expect(listed.map(({ seq, event, data }) => [seq, event, ...Object.values(data)].join(" "))).toEqual(IN_ORDER);
    expect(asked).toEqual([0, 5, 1_005, 1_009]);
  });
});
