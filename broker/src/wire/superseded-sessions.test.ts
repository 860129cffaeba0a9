import { afterEach, describe, expect, it } from "vitest";
import { silentLog } from "../app/logs.js";
import { AGENT, connectRunner, createSite, type ScriptedRunner, startBroker, until } from "./wire.test.kit.js";

const stops: (() => Promise<unknown> | unknown)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) {
    await stop();
  }
});

const CALL = { toolset: "shop", tool: "echo", arguments: { x: 1 } };

function epochOf(runner: ScriptedRunner): number {
  const welcome = runner.received.find(({ $case }) => $case === "welcome");
  return welcome?.$case === "welcome" ? Number(welcome.value.sessionEpoch) : 0;
}

describe("sessions of one runner id that begin at two brokers at once (B2)", () => {
  it("leave one: the one with the highest epoch; grants go to it alone, with its epoch", async () => {
    const site = createSite(silentLog);
    const brokers = [await startBroker(site), await startBroker(site)];
    for (const broker of brokers) stops.push(() => broker.stop());
    for (let round = 0; round < 15; round += 1) {
      const runnerId = `twin_${round}`;
      // Of one process, whose hello came late, or of several that share an id by mistake.
      const isOneProcess = round % 3 === 0;
      // One that loses may be closed before it was welcome: its connection is not awaited.
      const runners: ScriptedRunner[] = [];
      const closed: number[] = [];
      await Promise.all(
        Array.from({ length: 4 }, async (_, index) => {
          const wire = brokers[index % 2]?.wire;
          if (wire === undefined) return;
          const connecting = connectRunner(wire, {
            runnerId,
            journalId: isOneProcess ? `journal_${round}` : `journal_${round}_${index}`,
            wrap: (channel) => {
              void channel.closed.then(({ code }) => closed.push(code));
              return channel;
            },
          }).then((runner) => runners.push(runner));
          await Promise.race([connecting, until("three to be closed", () => closed.length === 3)]);
        }),
      );
      await until("three to be closed", () => closed.length === 3);
      expect(closed).toEqual(Array.from({ length: 3 }, () => (isOneProcess ? 4500 : 4409)));
      const newest = Math.max(...runners.map(epochOf));
      const present = runners.find((runner) => epochOf(runner) === newest);
      expect(brokers.reduce((sum, { wire }) => sum + (wire.inspect().sessions ?? 0), 0)).toBe(1);
      const call = brokers[round % 2]?.wire.calls.create(AGENT, { ...CALL, wait_seconds: 10 }, {});
      const grant = await present?.next();
      expect(Number(grant?.sessionEpoch)).toBe(newest);
      if (present !== undefined && grant !== undefined) present.succeed(grant);
      expect((await call)?.state).toBe("succeeded");
      expect(runners.filter((runner) => runner !== present).flatMap(({ grants }) => grants)).toEqual([]);
      present?.close();
      await until("the end", () => brokers.every(({ wire }) => wire.inspect().sessions === 0));
    }
  });
});
