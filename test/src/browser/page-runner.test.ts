/** The demo page as a runner: a real broker, a real page under a strict policy, and an agent that uses it. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { eventually } from "../kit/eventually.js";
import { titled, WITHOUT_CHROMIUM } from "./chromium.test.kit.js";
import { type PageStage, startPageStage, untilReady } from "./page-stage.test.kit.js";

let stage: PageStage;
beforeAll(async () => {
  if (WITHOUT_CHROMIUM === "") stage = await startPageStage();
}, 60_000);
afterAll(() => stage?.close(), 30_000);

describe.skipIf(WITHOUT_CHROMIUM !== "")(titled("a page that serves tools"), { timeout: 60_000 }, () => {
  it("lets an agent read it, find, fill and click in it, and call the product's own tool (B1, R1)", async () => {
    const page = await stage.open("/");
    const read = await stage.call("read_page", {});
    expect(read).toMatchObject({ state: "succeeded", result: { title: "Lamp shop", text: expect.stringContaining("# Lamp shop") } });
    const found = await stage.call("find", { role: "textbox", label: "Article" });
    expect(found).toMatchObject({ state: "succeeded", result: { total: 1, matches: [{ name: expect.stringContaining("Article") }] } });
    const { matches } = found.result as { readonly matches: readonly { readonly ref: string }[] };
    for (const [target, value] of [
      [{ ref: matches[0]?.ref }, "lamp"],
      [{ label: "Number" }, "2"],
      [{ label: "Delivery" }, "By courier"],
      [{ label: "As a gift" }, true],
    ] as const) {
      expect(await stage.call("fill", { ...target, value })).toMatchObject({ state: "succeeded" });
    }
    expect(await stage.call("click", { role: "button", name: "Place order" })).toMatchObject({ state: "succeeded" });
    expect(await page.textContent("#orders")).toBe("A1: lamp, 2 by courier, as a gift");
    expect(await stage.call("order", { article: "shade" })).toMatchObject({ state: "succeeded", result: { order: "A2" } });
    expect(await page.textContent("#orders li:last-child")).toBe("A2: shade, ordered by the agent");
    const wrong = await stage.call("click", { name: "Cancel order" });
    expect(wrong).toMatchObject({ state: "failed", error: { code: "element_not_found", retryable: false } });
    expect(wrong.model_result?.text).toContain("use find with less");
    await page.close();
  });

  it("keeps its runner id over a reload, and a duplicated tab takes one of its own (R5)", async () => {
    const page = await stage.open("/");
    const id = await untilReady(page);
    for (let load = 0; load < 3; load += 1) {
      await page.reload();
      expect(await untilReady(page)).toBe(id);
    }
    const opened = stage.browser.context.waitForEvent("page");
    // Opened with its opener, a tab begins with a copy of the session storage.
    await page.evaluate(() => void window.open(location.href));
    const copy = await opened;
    const copied = await untilReady(copy);
    expect(copied).toMatch(/^tab_[a-z2-7]{26}$/);
    expect(copied).not.toBe(id);
    expect(await untilReady(page)).toBe(id);
    await copy.reload();
    expect(await untilReady(copy)).toBe(copied);
    const { data } = await stage.agent.runners.list();
    expect(data.map((runner) => runner.runner_id)).toEqual(expect.arrayContaining([id, copied]));
    await copy.close();
    await page.close();
  });

  it("serves from a worker, which knows from its page whether it is seen (R1)", async () => {
    const page = await stage.open("/worker.html");
    const call = await stage.call("sum", { numbers: [1, 2, 39] }, "user_1", "demo_worker");
    expect(call).toMatchObject({ state: "succeeded", result: { sum: 42 }, receipt: { runner_id: await untilReady(page) } });
    await page.close();
  });

  it("made not one complaint of the browser over all of it, under its strict policy (R1)", async () => {
    const page = await stage.open("/");
    const answer = await page.reload();
    expect(answer?.headers()["content-security-policy"]).toContain("default-src 'none'; script-src 'self'; style-src 'self'");
    expect(answer?.headers()["content-security-policy"]).toContain("require-trusted-types-for 'script'");
    await page.close();
    expect(stage.complaints()).toEqual([]);
  });

  it("would have been complained of: what the policy forbids is seen by page, console and server (R1)", async () => {
    const page = await stage.open("/");
    expect(stage.complaints()).toEqual([]);
    const thrown = await page.evaluate(() => {
      document.body.append(Object.assign(document.createElement("img"), { src: "https://elsewhere.test/x.png" }));
      try {
        document.body.insertAdjacentHTML("beforeend", "<p>");
        return "";
      } catch (error) {
        return String(error);
      }
    });
    expect(thrown).toContain("TrustedHTML");
    const kinds = [
      /^error: Loading the image .* Content Security Policy/,
      /^error: violation of img-src: https:\/\/elsewhere\.test/,
      /^error: violation of require-trusted-types-for/,
      /policy broken.*img-src/,
      /policy broken.*insertAdjacentHTML/,
    ];
    await eventually("complaints of page, console and server", () =>
      kinds.every((kind) => stage.complaints().some((line) => kind.test(line))),
    );
    await page.close();
  });
});
