/** How long the calls of a broker that died wait for another one, when there are as many as I9 speaks of. */
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createStage, type Stage } from "../brokers/stage.js";
import { eventually } from "../kit/eventually.js";
import { type NatsServer, startNatsServer } from "../kit/nats-server.js";

const isLong = process.env.TOOLRUNNER_LONG === "1";
const CALLS = 10_000;
const title = "a broker that dies with 10,000 open calls";

let stage: Stage;
let nats: NatsServer;
beforeEach(async () => {
  if (isLong) [stage, nats] = await Promise.all([createStage(), startNatsServer({ version: "2.10" })]);
});
afterEach(async () => {
  if (!isLong) return;
  await stage.close();
  await nats.dispose();
});

describe.skipIf(!isLong)(isLong ? title : `${title} [a minute on an idle machine: npm run test:long]`, () => {
  it("I9: has them driven by the other within 10 s", { timeout: 400_000 }, async () => {
    const a = await stage.broker(nats.url);
    await stage.setUp(a);
    const b = await stage.broker(nats.url);
    let made = 0;
    await Promise.all(
      Array.from({ length: 32 }, async () => {
        while (made < CALLS) {
          made += 1;
          const answer = await stage.http(a, "POST", "/v1/calls", { toolset: "work", tool: "lookup", arguments: {} });
          expect(answer.status, JSON.stringify(answer.body)).toBe(202);
        }
      }),
    );
    await a.kill9();
    const killedAt = performance.now();
    const lines = () => b.stderr().split("\n");
    await eventually("the death to be noticed", () => lines().some((line) => line.includes("broker_gone")), 20_000);
    const noticedMs = Math.round(performance.now() - killedAt);
    const swept = await eventually(
      "the take-over",
      () =>
        lines()
          .filter((line) => line.includes("take_over_swept"))
          .map((line) => JSON.parse(line) as { adopted: number })
          .find(({ adopted }) => adopted >= CALLS),
      120_000,
    );
    const tookMs = Math.round(performance.now() - killedAt);
    const aSecond = Math.round((CALLS / (tookMs - noticedMs)) * 1_000);
    console.log(
      `${swept.adopted} open calls of a killed broker: noticed after ${noticedMs} ms, all driven after ${tookMs} ms (${aSecond} a second)`,
    );
    expect(tookMs).toBeLessThan(10_000);
  });
});
