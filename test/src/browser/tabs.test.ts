/** Several tabs of one window: which one is called. */
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { eventually } from "../kit/eventually.js";
import { titled, WITHOUT_CHROMIUM } from "./chromium.test.kit.js";
import { type PageStage, startPageStage, untilReady } from "./page-stage.test.kit.js";

let stage: PageStage;
beforeAll(async () => {
  if (WITHOUT_CHROMIUM === "") stage = await startPageStage();
}, 60_000);
afterAll(() => stage?.close(), 30_000);

/** Brings a tab to the front; resolves when all of them say where they are. */
async function front(tab: Page, others: readonly Page[]): Promise<void> {
  await stage.browser.front(tab);
  for (const other of others) {
    await eventually("a hidden tab", async () => (await other.evaluate(() => document.visibilityState)) === "hidden");
  }
}

const actor = async (subject: string) => {
  const call = await stage.call("read_page", {}, subject);
  expect(call).toMatchObject({ state: "succeeded" });
  return call.receipt?.runner_id;
};

describe.skipIf(WITHOUT_CHROMIUM !== "")(titled("tabs of one user"), { timeout: 60_000 }, () => {
  it("the one in front is called, each time, and never a tab of somebody else; when it closes, another takes over (X4, R5)", async () => {
    const first = await stage.open("/?subject=ann");
    const second = await stage.open("/?subject=ann");
    const other = await stage.open("/?subject=bob");
    const [firstId, secondId, otherId] = [await untilReady(first), await untilReady(second), await untilReady(other)];
    expect(new Set([firstId, secondId, otherId]).size).toBe(3);
    for (let round = 0; round < 5; round += 1) {
      for (const [tab, id, rest] of [
        [first, firstId, [second, other]],
        [second, secondId, [first, other]],
      ] as const) {
        await front(tab, rest);
        expect([await actor("ann"), await actor("ann")]).toEqual([id, id]);
        // Bob has one tab: it is called although it is hidden.
        expect(await actor("bob")).toBe(otherId);
      }
    }
    await front(other, [first, second]);
    // Somebody else's tab in front does not take what is Ann's.
    for (let round = 0; round < 4; round += 1) expect([firstId, secondId]).toContain(await actor("ann"));
    await front(second, [first, other]);
    expect(await actor("ann")).toBe(secondId);
    await second.close();
    expect(await actor("ann")).toBe(firstId);
    await first.close();
    // Its broker hears of the close when the browser's own end of the connection is gone.
    await eventually("the broker to see it gone", async () => {
      const { data } = await stage.agent.runners.list();
      return data.every((runner) => runner.runner_id !== firstId);
    });
    const waits = await stage.agent.call(
      { toolset: "demo_page", tool: "read_page", arguments: {}, subject: "ann", timeoutSeconds: 5 },
      { waitMs: 500 },
    );
    expect(waits).toMatchObject({ state: "queued", waiting_for: "runner" });
    const back = await stage.open("/?subject=ann");
    await eventually("the call that waited", async () => (await stage.agent.get(waits.id)).state === "succeeded");
    await back.close();
    await other.close();
  });

  it("a call that runs when its tab closes is not run by the other tab (X4, R5)", async () => {
    const first = await stage.open("/?subject=carl");
    const second = await stage.open("/?subject=carl");
    await front(second, [first]);
    // The button stays covered: the click waits for two seconds, in which the tab closes.
    for (const tab of [first, second]) {
      await tab.evaluate(() => {
        const veil = document.createElement("dialog");
        document.body.append(veil);
        veil.showModal();
      });
    }
    const call = await stage.agent.start({
      toolset: "demo_page",
      tool: "click",
      arguments: { name: "Place order" },
      subject: "carl",
      timeoutSeconds: 30,
    });
    await eventually("the handler to run", async () => {
      const { data } = await stage.agent.listEvents(call.id);
      return data.some(({ event }) => event === "started");
    });
    await second.close();
    const open = await eventually(
      "the outcome to be unknown",
      async () => {
        const now = await stage.agent.get(call.id);
        return now.state === "needs_reconciliation" && now;
      },
      25_000,
    );
    expect(open).toMatchObject({ attempt: 1 });
    expect(await first.textContent("#orders")).toBe("");
    await first.close();
  });
});
