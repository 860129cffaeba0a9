import { describe, expect, it } from "vitest";
import { runSchedule } from "./run-schedule.test.kit.js";

const LONG = process.env["TOOLRUNNER_LONG"] === "1";
const ONE = process.env["TOOLRUNNER_SCHEDULE_SEED"];
const SEEDS = ONE !== undefined ? 1 : Number(process.env["TOOLRUNNER_SCHEDULE_SEEDS"] ?? (LONG ? 3_000 : 40));
const FIRST = ONE !== undefined ? Number(ONE) : LONG ? Math.floor(Math.random() * 1_000_000_000) : 1;

describe("whatever brokers, bus, ledger, runners and agents do to each other", () => {
  it(
    `keeps I1 to I6, I8 and I9 in ${SEEDS} schedules from seed ${FIRST} on`,
    async () => {
      for (let seed = FIRST; seed < FIRST + SEEDS; seed += 1) {
        const { failures, logged } = await runSchedule(seed);
        expect(failures, `replay with TOOLRUNNER_SCHEDULE_SEED=${seed}\n${logged.slice(-80).join("\n")}`).toEqual([]);
      }
    },
    LONG ? 3_600_000 : 60_000,
  );
});
