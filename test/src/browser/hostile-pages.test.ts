/** Page tools on pages that are huge, that change under them, or that mean no good. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Browser, startBrowser, titled, WITHOUT_CHROMIUM } from "./chromium.test.kit.js";
import { openToolPage } from "./tool-page.test.kit.js";

let browser: Browser;
beforeAll(async () => {
  if (WITHOUT_CHROMIUM === "") browser = await startBrowser();
}, 40_000);
afterAll(() => browser?.close());

const RESULT_BYTES = 32_768;
const bytesOf = (value: unknown) => Buffer.byteLength(JSON.stringify(value));

describe.skipIf(WITHOUT_CHROMIUM !== "")(titled("page tools on hostile pages (B1)"), { timeout: 60_000 }, () => {
  it("thousands of matches, with names of any length, stay within the byte budget and are counted (B1)", async () => {
    const page = await openToolPage(
      browser,
      `<main></main><script>document.querySelector("main").innerHTML =
         Array.from({ length: 2000 }, (_, i) => "<button title='" + "\\u0001\\u00e9".repeat(1000) + "'>Item " + i + " " + "x".repeat(2500) + "</button>").join("")</script>`,
    );
    const found = await page.result("find", { role: "button", limit: 50 });
    expect(found).toMatchObject({ total: 2_000, notes: [expect.stringContaining("more match")] });
    expect((found["matches"] as unknown[]).length).toBeGreaterThan(10);
    expect(bytesOf(found)).toBeLessThanOrEqual(RESULT_BYTES);
    const ambiguous = await page.run("click", { role: "button" });
    expect(ambiguous).toMatchObject({ error: { code: "element_ambiguous" } });
    expect(bytesOf(ambiguous)).toBeLessThan(4_096);
    const read = await page.result("read_page", {});
    expect(bytesOf(read)).toBeLessThanOrEqual(RESULT_BYTES);
    expect(read["next_offset"]).toEqual(expect.any(Number));
    expect(await page.result("click", { name: "Item 1999 " })).toMatchObject({ element: { role: "button" } });
  });

  it("a page of hundreds of thousands of nodes is looked at within seconds, and what was left out is said (B1)", async () => {
    const page = await openToolPage(
      browser,
      `<button>First</button><main hidden></main><p>shown</p><script>document.querySelector("main").innerHTML = "<p>a<b>b</b><i>c</i></p>".repeat(90000)</script>`,
    );
    const begun = performance.now();
    expect(await page.result("find", { role: "button" })).toMatchObject({
      matches: [{ name: "First" }],
      total: 1,
      notes: [expect.stringContaining("too large")],
    });
    expect(performance.now() - begun).toBeLessThan(8_000);
    expect(await page.result("read_page", {})).toMatchObject({ text: expect.stringContaining("shown"), next_offset: null });
  });

  it("a page nested deeper than any page is, and a label that names itself, end the search and not the tab (B1)", async () => {
    const page = await openToolPage(
      browser,
      `<input id=self aria-labelledby="self self"><main></main><script>
         let at = document.querySelector("main");
         for (let level = 0; level < 1200; level += 1) at = at.appendChild(document.createElement("div"));
         at.textContent = "deep";
         for (let level = 0, host = document.body; level < 60; level += 1) {
           const next = document.createElement("section");
           (host.shadowRoot ?? host).append(next);
           next.attachShadow({ mode: "open" });
           host = next;
         }</script>`,
    );
    expect(await page.result("find", { text: "deep" })).toMatchObject({ total: 0, notes: [expect.stringContaining("too large")] });
    expect(await page.result("find", { selector: "#self" })).toMatchObject({ total: 1 });
    expect(await page.result("read_page", {})).toMatchObject({ notes: [expect.any(String), expect.stringContaining("too large")] });
  });

  it("a page that replaces the functions of elements is read and used all the same (B1)", async () => {
    const page = await openToolPage(
      browser,
      `<form><label>Name <input value=a></label><button onclick="event.preventDefault(); this.dataset.done = 1">Go</button></form><p>text</p><script>
         const lie = () => { throw new Error("a lie") };
         for (const [prototype, names] of [
           [Node.prototype, ["childNodes", "firstChild", "nextSibling", "parentNode", "nodeType", "isConnected", "textContent"]],
           [Element.prototype, ["tagName", "shadowRoot", "assignedSlot"]],
           [HTMLInputElement.prototype, ["value", "type", "labels", "readOnly"]],
         ]) for (const name of names) Object.defineProperty(prototype, name, { get: lie, set: lie });
         for (const name of ["getAttribute", "matches", "getClientRects", "getBoundingClientRect", "checkVisibility", "scrollIntoView"]) Element.prototype[name] = lie;
         EventTarget.prototype.dispatchEvent = lie; HTMLElement.prototype.focus = lie; HTMLElement.prototype.click = lie;
         for (const name of ["title", "body", "documentElement", "defaultView", "activeElement"]) Object.defineProperty(Document.prototype, name, { get: lie });
         Document.prototype.elementFromPoint = Document.prototype.getElementById = lie;
         MouseEvent = PointerEvent = InputEvent = getComputedStyle = lie;</script>`,
    );
    expect(await page.result("find", { role: "button" })).toMatchObject({ matches: [{ name: "Go", tag: "button" }] });
    expect(await page.result("fill", { label: "Name", value: "new" })).toMatchObject({ element: { value: "new" } });
    expect(await page.result("click", { name: "Go" })).toMatchObject({ element: { name: "Go" } });
    expect(await page.page.evaluate(() => document.querySelector("button")?.dataset["done"])).toBe("1");
    expect(await page.result("read_page", {})).toMatchObject({ title: "A page", text: expect.stringContaining("text") });
  });

  it("images and forms that are called like members of the page do not hide them (B1)", async () => {
    const names = [
      "body",
      "title",
      "documentElement",
      "defaultView",
      "baseURI",
      "activeElement",
      "elementFromPoint",
      "getSelection",
      "nodeType",
    ];
    const clobbering = names.map((name) => `<img name=${name} id=${name}><form name=${name}></form>`).join("");
    const page = await openToolPage(browser, `${clobbering}<p>text</p><label>Name <input></label><button>Go</button>`);
    expect(await page.result("read_page", {})).toMatchObject({
      title: "A page",
      address: "http://tools.test/page",
      text: expect.stringContaining("text"),
    });
    expect(await page.result("fill", { label: "Name", value: "x" })).toMatchObject({ element: { value: "x" } });
    expect(await page.result("click", { name: "Go" })).toMatchObject({ address: "http://tools.test/page" });
  });

  it("fields that are called like members of a form do not hide them (B1)", async () => {
    const clobbering = "nodeType tagName childNodes firstChild nextSibling parentNode getAttribute matches isConnected shadowRoot"
      .split(" ")
      .map((name) => `<input name=${name} aria-label=${name}>`)
      .join("");
    const page = await openToolPage(
      browser,
      `<form aria-label=trap><h2>Title</h2>${clobbering}<p>after</p><button type=button>Go</button></form>`,
    );
    expect(await page.result("read_page", {})).toMatchObject({ text: expect.stringMatching(/## Title[\s\S]*after/) });
    expect(await page.result("find", { role: "form" })).toMatchObject({ matches: [{ name: "trap" }] });
    expect(await page.result("find", { role: "textbox" })).toMatchObject({ total: 10 });
    expect(await page.result("click", { name: "Go" })).toMatchObject({ element: { name: "Go" } });
  });

  it("an element that the page takes away while it is used is said to be gone (B1)", async () => {
    const page = await openToolPage(
      browser,
      `<button onpointerdown="this.remove()">Fleeting</button><button onmouseover="this.replaceWith('gone')">Shy</button>
       <input aria-label=field oninput="this.remove()"><button id=moves>Moves</button>
       <script>setInterval(() => moves.replaceWith(Object.assign(document.createElement("button"), { id: "moves", textContent: "Moves" })), 1)</script>`,
    );
    for (const name of ["Fleeting", "Shy"]) {
      expect(await page.result("click", { name })).toMatchObject({ element: null, notes: [expect.stringContaining("taken")] });
    }
    expect(await page.result("fill", { label: "field", value: "x" })).toMatchObject({ element: null });
    const ref = ((await page.result("find", { name: "Moves" }))["matches"] as { ref: string }[])[0]?.ref;
    await page.page.waitForTimeout(20);
    expect(await page.failure("click", { ref })).toBe("element_stale");
  });

  it("a frame of another origin is left alone (B1)", async () => {
    const page = await openToolPage(browser, "<p>ours</p><iframe src='data:text/html,<button>Theirs</button>'></iframe>");
    expect(await page.result("find", { role: "button" })).toMatchObject({ total: 0 });
    expect(await page.result("read_page", {})).toMatchObject({ text: "ours" });
  });
});
