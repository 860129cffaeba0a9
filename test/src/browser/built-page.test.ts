/** The demo page as it is built, from a plain file server: no development client, so every complaint of the browser is the page's own. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "vite";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { eventually } from "../kit/eventually.js";
import { titled, WITHOUT_CHROMIUM } from "./chromium.test.kit.js";
import { type PageStage, startPageStage, untilReady } from "./page-stage.test.kit.js";

const DEMO = fileURLToPath(new URL("../../../runners/browser/demo", import.meta.url));

let stage: PageStage;
let built: string | undefined;
beforeAll(async () => {
  if (WITHOUT_CHROMIUM !== "") return;
  built = await mkdtemp(join(tmpdir(), "toolrunner-built-"));
  await build({ root: DEMO, configFile: join(DEMO, "vite.config.ts"), logLevel: "warn", build: { outDir: built, emptyOutDir: true } });
  stage = await startPageStage(["preview", "--outDir", built]);
}, 60_000);
afterAll(async () => {
  await stage?.close();
  if (built !== undefined) await rm(built, { recursive: true, force: true });
}, 30_000);

const connected = async (id: string) => (await stage.agent.runners.list()).data.some((runner) => runner.runner_id === id);

describe.skipIf(WITHOUT_CHROMIUM !== "")(titled("the built page"), { timeout: 60_000 }, () => {
  it("serves from the page, and from its worker, under the strict policy (R1)", async () => {
    const page = await stage.open("/");
    expect(await stage.call("order", { article: "lamp" })).toMatchObject({ state: "succeeded", result: { order: "A1" } });
    await page.close();
    const withWorker = await stage.open("/worker.html");
    expect(await stage.call("sum", { numbers: [2, 3] }, "user_1", "demo_worker")).toMatchObject({ result: { sum: 5 } });
    await withWorker.close();
  });

  it("answers a click that leads to another page, and serves again from the page that comes back, as it was (B1, R5)", async () => {
    const page = await stage.open("/");
    const id = await untilReady(page);
    await page.evaluate(() => {
      document.title = "kept";
    });
    // What the page did before it went into the back/forward cache: its broker is told at once.
    expect(await stage.call("click", { role: "link", name: "The same in a worker" })).toMatchObject({ state: "succeeded" });
    await eventually("the runner of the page that was left to be gone", async () => !(await connected(id)));
    await page.waitForURL("**/worker.html");
    // In a turn of its own, so that the answer to this request comes before the page goes.
    await page.evaluate(() => void setTimeout(() => history.back()));
    await eventually("the runner to be back under its id", () => connected(id));
    // A page that was loaded anew would not have this title.
    expect(await stage.call("read_page", {})).toMatchObject({ state: "succeeded", result: { title: "kept" }, receipt: { runner_id: id } });
    await page.close();
  });

  it("made the browser complain of nothing (R1)", () => {
    expect(stage.complaints()).toEqual([]);
  });
});
