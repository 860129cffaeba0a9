/** Several tabs of one user: one takes over what another one had, and nothing runs twice. */
import type { Call } from "@toolrunner/agent-sdk";
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { eventually } from "../kit/eventually.js";
import { titled, WITHOUT_CHROMIUM } from "./chromium.test.kit.js";
import { ready, release, type SdkStage, startSdkStage } from "./sdk-page.test.kit.js";

const LEASE_MS = 12_000;
/** Within this time, a call that waits for a lease's end is not settled. */
const SOON_MS = 8_000;

let stage: SdkStage;
beforeAll(async () => {
  // A lease that outlasts a hand-over, as it does in production: what is known sooner is known from a journal.
  if (WITHOUT_CHROMIUM === "") stage = await startSdkStage({ figures: { leaseMs: LEASE_MS } });
}, 60_000);
afterAll(() => stage?.close(), 30_000);
// Also after a test that failed: its tabs would look after the next one's orphans.
afterEach(async () => {
  for (const page of stage?.browser.context.pages() ?? []) if (page.url().startsWith(stage.origin)) await page.close();
});

let numbers = 0;
const next = () => {
  numbers += 1;
  return numbers;
};
const runs = (n: number) => stage.effects.filter((effect) => effect.n === n).length;
const looked = () => stage.effects.filter((effect) => effect.n === -1).length;
/** Runners whose journals were adopted. */
const adopted = () => stage.logged.flatMap(({ event, runner_id }) => (event === "journal_adopted" ? [String(runner_id)] : []));

async function crash(page: Page): Promise<void> {
  void (await stage.browser.context.newCDPSession(page)).send("Page.crash").catch(() => undefined);
  await page.waitForEvent("crash");
  await page.close();
}

/** Cuts what the page says off, without its socket's end being seen by anybody. */
const mute = (page: Page) =>
  page.evaluate(
    "WebSocket.prototype.send = () => {}; navigator.sendBeacon = () => true; globalThis.fetch = () => new Promise(() => {}); 0",
  );

describe.skipIf(WITHOUT_CHROMIUM !== "")(titled("tabs that take over from one another"), { timeout: 90_000 }, () => {
  it("says for a tab that crashed what had not begun there, so that it runs elsewhere without a lease's end or a person (G1, R5, I3)", async () => {
    const first = await stage.serve({ authorizeWaits: true });
    const n = next();
    const before = looked();
    const call = await stage.start("work", n);
    await eventually("the grant to be looked at", () => looked() > before);
    await eventually("the grant in the journal", async () => (await stage.recorded(first)).includes("granted"));
    const second = await stage.serve();
    const id = await ready(second);
    await crash(first);
    expect(await stage.settled(call, SOON_MS)).toMatchObject({ state: "succeeded", receipt: { runner_id: id } });
    expect(runs(n)).toBe(1);
    await second.close();
  });

  it("answers for a grant that the tab which crashed never read: asked by its id, from its journal (G1, B2)", async () => {
    const first = await stage.page();
    // Frames that come are not read: as in a tab that has no time for them until it dies.
    await first.evaluate(`const Real = WebSocket; globalThis.isDeaf = false;
      globalThis.WebSocket = class extends Real { constructor(...all) { super(...all); this.addEventListener("message", (event) => isDeaf && event.stopImmediatePropagation()); } };
      void serve();`);
    const gone = await ready(first);
    await first.evaluate("globalThis.isDeaf = true");
    const n = next();
    const call = await stage.start("work", n);
    await eventually("the grant", async () => (await stage.agent.get(call.id)).state === "running");
    const second = await stage.serve();
    const id = await ready(second);
    await crash(first);
    await eventually("the adoption", () => adopted().includes(gone), SOON_MS);
    await eventually("the runner that is gone to be there again, claiming nothing", async () =>
      (await stage.agent.runners.list()).data.some(({ runner_id, slots }) => runner_id === gone && slots === 0),
    );
    expect(await stage.settled(call, 2 * LEASE_MS)).toMatchObject({ state: "succeeded", receipt: { runner_id: id } });
    expect(runs(n)).toBe(1);
    await second.close();
  });

  it("delivers what a tab that crashed had finished and nobody had heard of (I7, R5)", async () => {
    const first = await stage.serve();
    const n = next();
    const call = await stage.start("hold", n);
    await stage.began(n);
    await mute(first);
    await release(first, n);
    await eventually("the receipt in the journal", async () => (await stage.recorded(first)).includes(`finished ${n}`));
    const second = await stage.serve();
    await crash(first);
    expect((await stage.agent.get(call.id)).state).toBe("running");
    expect(await stage.settled(call, SOON_MS)).toMatchObject({ state: "succeeded", result: { n } });
    expect(runs(n)).toBe(1);
    await second.close();
  });

  it("says that the outcome of what ran there is unknown, and starts it nowhere (G1, I3, G6)", async () => {
    const first = await stage.serve();
    const n = next();
    const call = await stage.start("hold", n);
    await stage.began(n);
    const second = await stage.serve();
    await crash(first);
    expect(await stage.settled(call, SOON_MS, ["needs_reconciliation"])).toMatchObject({ state: "needs_reconciliation" });
    expect(runs(n)).toBe(1);
    await stage.agent.cancel(call.id, { mode: "skip" }).catch(() => undefined);
    await second.close();
  });

  it("asks the other tab's reconcile handler what became of it, and believes it (G4, I3)", async () => {
    const first = await stage.serve();
    const n = next();
    const call = await stage.start("asked", n);
    await stage.began(n);
    const second = await stage.serve();
    const id = await ready(second);
    await crash(first);
    expect(await stage.settled(call, SOON_MS)).toMatchObject({ state: "succeeded", result: { n, found_by: id } });
    expect(runs(n)).toBe(1);
    await second.close();
  });

  it("leaves the journal of a tab that is reloaded to it, as often as it is, and so its id (R5)", async () => {
    const [first, second] = [await stage.serve(), await stage.serve()];
    const id = await ready(first);
    for (let load = 0; load < 5; load += 1) {
      await first.reload();
      expect(await ready(first)).toBe(id);
    }
    await new Promise((resolve) => setTimeout(resolve, 4_000));
    expect(adopted()).not.toContain(id);
    expect(await ready(second)).not.toBe(id);
    await Promise.all([first.close(), second.close()]);
  });

  it("never delivers what is another user's: that waits until he is back (I8)", async () => {
    const first = await stage.serve({ subject: "user_7" });
    const n = next();
    const call = await stage.start("hold", n, { subject: "user_7" });
    await stage.began(n);
    await mute(first);
    await release(first, n);
    await eventually("the receipt in the journal", async () => (await stage.recorded(first)).includes(`finished ${n}`));
    const second = await stage.serve({ subject: "user_8" });
    await crash(first);
    await new Promise((resolve) => setTimeout(resolve, 4_500));
    expect((await stage.agent.get(call.id)).state).not.toBe("succeeded");
    const third = await stage.serve({ subject: "user_7" });
    expect(await stage.settled(call, 20_000)).toMatchObject({ state: "succeeded", result: { n } });
    expect(runs(n)).toBe(1);
    await Promise.all([second.close(), third.close()]);
  });

  it("has one tab look after orphans at a time, and another one when that is gone, too; nothing runs twice (R5, I3)", async () => {
    const tabs: Page[] = [];
    for (let tab = 0; tab < 4; tab += 1) tabs.push(await stage.serve());
    const calls: { readonly n: number; readonly call: Call }[] = [];
    for (let index = 0; index < 8; index += 1) {
      const n = next();
      calls.push({ n, call: await stage.start("hold", n) });
      await stage.began(n);
    }
    for (const tab of tabs) await mute(tab);
    for (const { n } of calls) for (const tab of tabs) await release(tab, n);
    const [anyTab] = tabs;
    await eventually("the receipts in the journals", async () => {
      const all = anyTab === undefined ? [] : await stage.recorded(anyTab);
      return calls.every(({ n }) => all.includes(`finished ${n}`));
    });
    const survivor = await stage.serve();
    for (const { call } of calls) expect((await stage.agent.get(call.id)).state).toBe("running");
    for (const tab of tabs) await crash(tab);
    for (const { n, call } of calls) {
      expect(await stage.settled(call, 40_000)).toMatchObject({ state: "succeeded", result: { n } });
      expect(runs(n)).toBe(1);
    }
    await survivor.close();
  });
});
