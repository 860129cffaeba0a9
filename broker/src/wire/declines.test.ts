import { afterEach, describe, expect, it } from "vitest";
import { silentLog } from "../app/logs.js";
import { entriesOf } from "./reconcile.test.kit.js";
import { AGENT, connectRunner, createSite, type ScriptedRunner, startBroker, until } from "./wire.test.kit.js";

const stops: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) {
    await stop();
  }
});

/** Declines every grant that comes, until it is told to take them. */
async function decliner(runner: ScriptedRunner, takes: () => boolean): Promise<void> {
  for (;;) {
    const grant = await runner.next();
    if (takes()) {
      runner.succeed(grant);
      return;
    }
    const { callId, grantId, fence } = grant;
    runner.send({ $case: "decline", value: { callId, grantId, fence, reason: 1, message: "not now" } });
  }
}

describe("declines (B3)", () => {
  it("of many runners do not send a call round among them: pauses grow, and it is run by who takes it in the end", async () => {
    const site = createSite(silentLog);
    const one = await startBroker(site);
    stops.push(() => one.stop());
    let takes = false;
    for (let index = 0; index < 12; index += 1) {
      const runner = await connectRunner(one.wire, { runnerId: `runner_${index}`, journalId: `journal_${index}` });
      void decliner(runner, () => takes);
    }
    const told = one.wire.calls.create(AGENT, { toolset: "shop", tool: "echo", arguments: {}, wait_seconds: 20 }, {});
    const callId = await until("the call", () => [...site.store.entriesOfCall.keys()][0]);
    const returns = () => entriesOf(site, callId).flatMap((entry) => (entry.kind === "returned" ? [entry] : []));
    await until("four declines", () => returns().length >= 4);
    const pauses = returns()
      .slice(0, 4)
      .map(({ at, notBeforeMs }) => (notBeforeMs === null ? 0 : notBeforeMs - at));
    expect(pauses[0]).toBe(0);
    expect(pauses.slice(1).every((pause, index) => pause >= 125 * 2 ** index && pause <= 250 * 2 ** index)).toBe(true);
    takes = true;
    expect(await told).toMatchObject({ state: "succeeded", attempt: 1 });
  });
});
