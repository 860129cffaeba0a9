/** Pages that are reloaded, crash, are closed, frozen, cut off or put into the cache, in a real browser, and what becomes of their calls. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { CDPSession, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { eventually } from "../kit/eventually.js";
import { titled, WITHOUT_CHROMIUM } from "./chromium.test.kit.js";
import { ready, release, type SdkScope, type SdkStage, startSdkStage } from "./sdk-page.test.kit.js";

let stage: SdkStage;
let profile: string | undefined;
beforeAll(async () => {
  if (WITHOUT_CHROMIUM !== "") return;
  profile = await mkdtemp(join(tmpdir(), "toolrunner-profile-"));
  stage = await startSdkStage({ profile });
}, 60_000);
afterAll(async () => {
  await stage?.close();
  if (profile !== undefined) await rm(profile, { recursive: true, force: true, maxRetries: 10 });
}, 30_000);

// Also after a test that failed: its page would take the next one's calls.
afterEach(async () => {
  stage?.line.hold(false);
  for (const page of stage?.browser.context.pages() ?? []) if (page.url().startsWith(stage.origin)) await page.close();
});

let numbers = 0;
const next = () => {
  numbers += 1;
  return numbers;
};
const cdp = (page: Page): Promise<CDPSession> => stage.browser.context.newCDPSession(page);
const kindOf = (page: Page) => page.evaluate(() => (globalThis as unknown as SdkScope).runner.state.kind);
/** Runners that take calls: sessions of adopted journals take none. */
const serving = async () => (await stage.agent.runners.list()).data.filter(({ slots }) => slots > 0).map(({ runner_id }) => runner_id);
const runs = (n: number) => stage.effects.filter((effect) => effect.n === n).length;
const logged = (event: string) => stage.logged.filter((line) => line.event === event);

/** Ends the handler where no receipt can leave the page, and waits until the journal has it. */
async function finishUnheard(page: Page, n: number): Promise<void> {
  stage.line.hold(true);
  stage.line.cut();
  await release(page, n);
  await eventually("the receipt in the journal", async () => (await stage.recorded(page)).includes(`finished ${n}`));
}

/** Journals of this origin. */
const journals = (page: Page) =>
  page.evaluate(async () => (await indexedDB.databases()).filter(({ name }) => name?.startsWith("toolrunner journal")).length);

describe.skipIf(WITHOUT_CHROMIUM !== "")(titled("the life of a page"), { timeout: 90_000 }, () => {
  it("keeps a finished result over a reload: it settles its call, and nothing runs twice (R2, I7, B2)", async () => {
    const page = await stage.serve();
    const n = next();
    const call = await stage.start("hold", n);
    await stage.began(n);
    await finishUnheard(page, n);
    await page.reload();
    stage.line.hold(false);
    expect(await stage.settled(call)).toMatchObject({ state: "succeeded", result: { n } });
    expect(runs(n)).toBe(1);
    await page.close();
  });

  it("keeps it when its renderer crashes, and the next tab adopts its journal, delivers it and deletes the journal (R2, R5, I7)", async () => {
    const page = await stage.serve();
    const n = next();
    const call = await stage.start("hold", n);
    await stage.began(n);
    await finishUnheard(page, n);
    void (await cdp(page)).send("Page.crash").catch(() => undefined);
    await page.waitForEvent("crash");
    stage.line.hold(false);
    const other = await stage.serve();
    expect(await stage.settled(call)).toMatchObject({ state: "succeeded", result: { n } });
    expect(runs(n)).toBe(1);
    await eventually("the journal to be deleted", async () => (await journals(other)) === 1);
    await Promise.all([page.close(), other.close()]);
  });

  it("delivers the receipts of a page that closes by its last request, when its socket cannot any more (R4)", async () => {
    const page = await stage.serve();
    const n = next();
    const call = await stage.start("hold", n);
    await stage.began(n);
    // The socket stays where it is and brings nothing; a new connection is let through.
    const client = await cdp(page);
    await page.evaluate(`WebSocket.prototype.send = () => {};`);
    await release(page, n);
    await eventually("the receipt in the journal", async () => (await stage.recorded(page)).includes(`finished ${n}`));
    expect((await stage.agent.get(call.id)).state).not.toBe("succeeded");
    const flushes = logged("receipts_flushed").length;
    await client.detach();
    await page.close({ runBeforeUnload: false });
    expect(await stage.settled(call, 2_000)).toMatchObject({ state: "succeeded", result: { n } });
    expect(logged("receipts_flushed").length).toBeGreaterThan(flushes);
    expect(runs(n)).toBe(1);
  });

  it("leaves a call that ran when its page was closed to a person, does not start it again, and repeats what may be repeated (I3, R5)", async () => {
    const page = await stage.serve();
    const [once, again] = [next(), next()];
    const [first, second] = [await stage.start("hold", once), await stage.start("again", again)];
    await Promise.all([stage.began(once), stage.began(again)]);
    await page.close();
    const other = await stage.serve();
    await eventually("the repeatable one to run again", () => runs(again) === 2, 15_000);
    await release(other, again);
    expect(await stage.settled(second)).toMatchObject({ state: "succeeded" });
    expect(await stage.settled(first, 15_000, ["needs_reconciliation"])).toMatchObject({ state: "needs_reconciliation" });
    expect(runs(once)).toBe(1);
    await stage.agent.cancel(first.id, { mode: "skip" }).catch(() => undefined);
    await other.close();
  });

  it("is kept in the back/forward cache when nothing runs, serves nothing there, and serves as it was when it comes back (R5)", async () => {
    const page = await stage.serve();
    const id = await ready(page);
    await page.evaluate("globalThis.kept = 1");
    await page.goto(`${stage.origin}/elsewhere`);
    await eventually("no runner", async () => (await serving()).length === 0);
    // In a turn of its own, so that the answer to this request comes before the page goes; a page from the cache loads nothing.
    await page.evaluate(() => void setTimeout(() => history.back()));
    await eventually("the page as it was", async () => (await page.evaluate("globalThis.kept").catch(() => 0)) === 1);
    expect(await ready(page)).toBe(id);
    const n = next();
    expect(await stage.settled(await stage.start("work", n))).toMatchObject({ state: "succeeded", receipt: { runner_id: id } });
    expect(runs(n)).toBe(1);
    await page.close();
  });

  it("that is frozen says so, is called no more, keeps its result, and delivers it when it is thawed (R4, R8, B2)", async () => {
    const page = await stage.serve();
    const client = await cdp(page);
    await client.send("Page.setWebLifecycleState", { state: "frozen" });
    await eventually("the session to be closed", async () => (await serving()).length === 0);
    const n = next();
    const call = await stage.start("work", n);
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(await stage.agent.get(call.id)).toMatchObject({ state: "queued", waiting_for: "runner" });
    await client.send("Page.setWebLifecycleState", { state: "active" });
    expect(await stage.settled(call)).toMatchObject({ state: "succeeded" });
    expect(runs(n)).toBe(1);
    await page.close();
  });

  it("that is frozen while a handler runs keeps what comes of it: the lease is lost, and the result still settles the call (R8, G3, I3)", async () => {
    const page = await stage.serve();
    const client = await cdp(page);
    const n = next();
    const call = await stage.start("hold", n);
    await stage.began(n);
    await client.send("Page.setWebLifecycleState", { state: "frozen" });
    expect(await stage.settled(call, 15_000, ["needs_reconciliation"])).toMatchObject({ state: "needs_reconciliation" });
    await client.send("Page.setWebLifecycleState", { state: "active" });
    await ready(page);
    await release(page, n);
    expect(await stage.settled(call)).toMatchObject({ state: "succeeded", result: { n } });
    expect(runs(n)).toBe(1);
    await page.close();
  });

  it("finds its broker again after it was offline, at once when the network is back, with one session (R3)", async () => {
    const page = await stage.serve();
    const client = await cdp(page);
    const n = next();
    const call = await stage.start("hold", n);
    await stage.began(n);
    const offline = (isOffline: boolean) =>
      client.send("Network.emulateNetworkConditions", { offline: isOffline, latency: 0, downloadThroughput: -1, uploadThroughput: -1 });
    await offline(true);
    stage.line.hold(true);
    stage.line.cut();
    await eventually("the runner to be cut off", async () => ["retrying", "connecting"].includes(await kindOf(page)));
    await release(page, n);
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    stage.line.hold(false);
    const opened = logged("session_opened").length;
    await offline(false);
    expect(await stage.settled(call)).toMatchObject({ state: "succeeded", result: { n } });
    await ready(page);
    expect(logged("session_opened").length - opened).toBe(1);
    expect(runs(n)).toBe(1);
    await page.close();
  });

  it("does not start what it was granted before its clock jumped, nor trust its socket after it, and loses no result (R8, G3)", async () => {
    const page = await stage.page();
    // A wall clock that the test moves, as a machine that slept finds it.
    await page.evaluate(`globalThis.slept = 0; const now = Date.now; Date.now = () => now() + slept;`);
    await page.evaluate(`void serve({ authorizeWaits: true })`);
    await ready(page);
    await eventually("the pages before to be gone", async () => (await serving()).length === 1);
    const n = next();
    const waits = () => stage.effects.filter((effect) => effect.n === -1).length;
    const before = waits();
    const call = await stage.start("work", n, { timeoutSeconds: 60 });
    await eventually("the grant to be looked at", () => waits() > before);
    await page.evaluate(`slept = 8 * 3600000; dispatchEvent(new Event("online")); authorized();`);
    await eventually("the refusal to start", () => logged("grant_declined").some((line) => /lease was over/.test(String(line["message"]))));
    expect(runs(n)).toBe(0);
    // It is called again, and takes it this time.
    await page.evaluate("globalThis.isLet = true; authorized()");
    expect(await stage.settled(call)).toMatchObject({ state: "succeeded" });
    expect(runs(n)).toBe(1);
    await page.close();
  });

  it("hands back what has not begun when it is closed, and another tab runs it at once, long before a lease ends (R4, R5, G1)", async () => {
    const first = await stage.serve({ authorizeWaits: true });
    const n = next();
    const before = stage.effects.filter((effect) => effect.n === -1).length;
    const call = await stage.start("work", n);
    await eventually("the grant to be looked at", () => stage.effects.filter((effect) => effect.n === -1).length > before);
    const second = await stage.serve();
    const id = await ready(second);
    const closedAt = performance.now();
    await first.close();
    expect(await stage.settled(call)).toMatchObject({ state: "succeeded", receipt: { runner_id: id } });
    expect(performance.now() - closedAt).toBeLessThan(2_500);
    expect(runs(n)).toBe(1);
    await second.close();
  });

  it("serves from a worker as well, whose page tells it when it is frozen and when it is back (R1, R4)", async () => {
    const page = await stage.page();
    await page.evaluate(`globalThis.worker = new Worker("/worker.js"); sdk.forwardPageState(worker); worker.postMessage({ serve: {} });`);
    await eventually("the worker's runner", async () => (await serving()).length === 1);
    const n = next();
    expect(await stage.settled(await stage.start("work", n))).toMatchObject({ state: "succeeded" });
    const client = await cdp(page);
    await client.send("Page.setWebLifecycleState", { state: "frozen" });
    await eventually("the session to be closed", async () => (await serving()).length === 0);
    await client.send("Page.setWebLifecycleState", { state: "active" });
    await eventually("the worker's runner", async () => (await serving()).length === 1);
    await page.close();
  });

  it("keeps its result when the whole browser is killed, and delivers it after the next start with the same profile (R2, I7)", async () => {
    const page = await stage.serve();
    const n = next();
    const call = await stage.start("hold", n);
    await stage.began(n);
    await finishUnheard(page, n);
    await stage.restartBrowser();
    stage.line.hold(false);
    const after = await stage.serve();
    expect(await stage.settled(call)).toMatchObject({ state: "succeeded", result: { n } });
    expect(runs(n)).toBe(1);
    await after.close();
  });
});
