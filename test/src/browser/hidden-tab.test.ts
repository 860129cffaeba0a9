/**
 * A tab that nobody looks at, under the throttling that browsers keep for those: timers that come once a minute. Two minutes of it, or
 * thirty with TOOLRUNNER_LONG=1.
 */
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { eventually } from "../kit/eventually.js";
import { titled, WITHOUT_CHROMIUM } from "./chromium.test.kit.js";
import { ready, type SdkStage, startSdkStage } from "./sdk-page.test.kit.js";

const HIDDEN_MS = process.env["TOOLRUNNER_LONG"] === "1" ? 30 * 60_000 : 2 * 60_000;
/** Between two calls. */
const CALL_EACH_MS = 5_000;
/** A chain of timers of a tenth of a second each, seen from the page. */
const CHAIN = `globalThis.chain = []; let last = performance.now();
  const link = () => { const now = performance.now(); chain.push(now - last); last = now; setTimeout(link, 100); }; link();`;

let stage: SdkStage;
beforeAll(async () => {
  if (WITHOUT_CHROMIUM !== "") return;
  stage = await startSdkStage({
    // The browser's own delay before it throttles is five minutes.
    flags: ["--enable-features=IntensiveWakeUpThrottling:grace_period_seconds/10"],
    // As in production.
    figures: { pingIntervalMs: 5_000, leaseMs: 15_000 },
  });
}, 60_000);
afterAll(() => stage?.close(), 30_000);

const longestGapMs = (page: Page) => page.evaluate(() => Math.max(...(globalThis as unknown as { chain: readonly number[] }).chain));
const counted = (event: string) => stage.logged.filter((line) => line.event === event).length;

describe.skipIf(WITHOUT_CHROMIUM !== "")(titled("a hidden tab"), { timeout: HIDDEN_MS + 120_000 }, () => {
  it("whose timers come once a minute serves every call once, in one session, at the pace of its broker (B2, R3, R8)", async () => {
    const page = await stage.serve();
    const id = await ready(page);
    await page.evaluate(CHAIN);
    const cover = await stage.browser.newTab();
    await stage.browser.front(cover);
    await eventually("the tab to be hidden", async () => (await page.evaluate(() => document.visibilityState)) === "hidden");
    const endsAt = performance.now() + HIDDEN_MS;
    const slowest = { ms: 0 };
    let n = 0;
    while (performance.now() < endsAt) {
      n += 1;
      const began = performance.now();
      const call = await stage.settled(await stage.start("work", n), 30_000);
      slowest.ms = Math.max(slowest.ms, performance.now() - began);
      expect(call).toMatchObject({ state: "succeeded", result: { n }, attempt: 1, receipt: { runner_id: id } });
      await new Promise((resolve) => setTimeout(resolve, CALL_EACH_MS));
    }
    expect(n).toBeGreaterThan(HIDDEN_MS / CALL_EACH_MS / 2);
    expect(stage.effects.map((effect) => effect.n)).toEqual(Array.from({ length: n }, (_, index) => index + 1));
    // One attempt to connect, one session, still up; nobody doubted the other.
    expect([counted("session_opened"), counted("session_closed"), counted("broker_silent"), counted("session_unresponsive")]).toEqual([
      1, 0, 0, 0,
    ]);
    // It really was throttled: a timer of a tenth of a second took the better part of a minute.
    expect(await longestGapMs(page)).toBeGreaterThan(30_000);
    // And calls were not: each took no longer than a few of the browser's turns.
    expect(slowest.ms).toBeLessThan(10_000);
    await page.close();
  });
});
