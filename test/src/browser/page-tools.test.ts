/** What the page tools do to real pages, in a real browser. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Browser, startBrowser, titled, WITHOUT_CHROMIUM } from "./chromium.test.kit.js";
import { openToolPage, type ToolPage } from "./tool-page.test.kit.js";

let browser: Browser;
beforeAll(async () => {
  if (WITHOUT_CHROMIUM === "") browser = await startBrowser();
}, 40_000);
afterAll(() => browser?.close());

const matchesOf = async (page: ToolPage, criteria: object): Promise<readonly Readonly<Record<string, unknown>>[]> =>
  (await page.result("find", criteria))["matches"] as readonly Readonly<Record<string, unknown>>[];

describe.skipIf(WITHOUT_CHROMIUM !== "")(titled("the page tools in Chromium (B1)"), { timeout: 60_000 }, () => {
  it("find sees elements as a person does: by role, name, label and text, through shadow trees and frames (B1)", async () => {
    const page = await openToolPage(
      browser,
      `<h1>Orders</h1><nav><a href="/a">Home</a><a>no link</a></nav>
       <button aria-label="Close dialog">x</button><button>  Buy
         <b>now</b></button><button hidden>Buy later</button>
       <label>Name <input value="Ann"></label><label for=m>Mail</label><input id=m type=email placeholder="you@x">
       <span id=q>Quantity</span><input aria-labelledby=q type=number value=2>
       <select aria-label=Size><option>S<option selected>M</select><div role=switch aria-checked=true>Dark mode</div>
       <div id=host></div><iframe srcdoc="<p>inside <a href='/f'>a frame</a></p>"></iframe>
       <div contenteditable aria-label=Note>some text</div><img alt="a cat" src=data: width=5 height=5>
       <script>host.attachShadow({mode:"open"}).innerHTML = "<button>In the shadow</button>"</script>`,
    );
    await page.page.frames()[1]?.waitForLoadState();
    const names = async (criteria: object) => (await matchesOf(page, criteria)).map(({ role, name }) => `${role} ${name}`);
    expect(await names({ role: "button" })).toEqual(["button Close dialog", "button Buy now", "button In the shadow"]);
    expect(await names({ role: "button", hidden: true })).toContain("button Buy later");
    expect(await names({ name: "buy NOW", exact: true })).toEqual(["button Buy now"]);
    expect(await names({ role: "link" })).toEqual(["link Home", "link a frame"]);
    expect(await names({ text: "now" })).toEqual([" "]);
    expect(await names({ role: "button", text: "buy now" })).toEqual(["button Buy now"]);
    expect(await names({ selector: "nav > a[href]" })).toEqual(["link Home"]);
    expect(await matchesOf(page, { label: "name" })).toMatchObject([{ role: "textbox", name: "Name", value: "Ann" }]);
    expect(await matchesOf(page, { label: "you@" })).toMatchObject([{ role: "textbox", name: "Mail" }]);
    expect(await matchesOf(page, { name: "quantity" })).toMatchObject([{ role: "spinbutton", value: "2" }]);
    expect(await matchesOf(page, { role: "combobox" })).toMatchObject([{ name: "Size", value: "M" }]);
    expect(await matchesOf(page, { role: "switch" })).toMatchObject([{ name: "Dark mode", checked: true }]);
    expect(await matchesOf(page, { role: "textbox", name: "Note" })).toMatchObject([{ value: "some text" }]);
    expect(await names({ role: "img" })).toEqual(["img a cat"]);
    expect(await names({ role: "heading" })).toEqual(["heading Orders"]);
    expect(await page.failure("find", {})).toBe("arguments_invalid");
    expect(await page.failure("find", { selector: "a[" })).toBe("selector_invalid");
    expect((await page.result("read_page", {}))["text"]).toMatch(/In the shadow[\s\S]*inside \[a frame\]/);
  });

  it("never tells what is in password, code and card fields, whatever they are called (B1)", async () => {
    const page = await openToolPage(
      browser,
      `<input aria-label=a type=password value=secret1><input aria-label=b autocomplete="section-x one-time-code" value=secret2>
       <input aria-label=c autocomplete=cc-number value=secret3><textarea aria-label=d autocomplete=current-password>secret4</textarea>
       <input aria-label=e value=open><input type=hidden value=secret5>`,
    );
    const found = await page.result("find", { role: "textbox" });
    expect(found["matches"]).toHaveLength(5);
    const filled = await page.result("fill", { name: "a", exact: true, value: "secret6" });
    expect(JSON.stringify([found, filled, await page.result("read_page", {}), await page.result("find", { selector: "*" })])).not.toMatch(
      /secret/,
    );
    expect(await page.page.inputValue("[aria-label=a]")).toBe("secret6");
  });

  it("click makes the events of a real click, in order, and submits, follows and opens as one does (B1)", async () => {
    const page = await openToolPage(
      browser,
      `<form onsubmit="event.preventDefault(); log.push('submit')"><button>Go</button></form>
       <details><summary>More</summary><p>inside</p></details><label><input type=checkbox> Agree</label><a href="#there">There</a>
       <script>var log = []; for (const type of ["pointerover","mouseover","pointermove","pointerdown","mousedown","focusin","pointerup","mouseup","click"])
         document.querySelector("button").addEventListener(type, (event) => log.push(event.type + (event.composed && event.bubbles ? "" : "!")));</script>`,
    );
    const log = () => page.page.evaluate(() => (globalThis as unknown as { log: string[] }).log);
    expect(await page.result("click", { role: "button", name: "Go" })).toMatchObject({
      element: { role: "button", name: "Go" },
      address: "http://tools.test/page",
    });
    expect(await log()).toEqual(
      "pointerover mouseover pointermove pointerdown mousedown focusin pointerup mouseup click submit".split(" "),
    );
    await page.result("click", { name: "More" });
    expect(await page.page.getAttribute("details", "open")).toBe("");
    await page.result("click", { text: "Agree" });
    expect(await page.page.isChecked("input")).toBe(true);
    await page.result("click", { role: "link" });
    expect(page.page.url()).toContain("#there");
  });

  it("click refuses what a person could not click, and says why (B1)", async () => {
    const page = await openToolPage(
      browser,
      `<button id=a>Same</button><button>Same</button><button disabled>Off</button><fieldset disabled><button>Off too</button></fieldset>
       <div aria-disabled=true><button>Off as well</button></div><button style="visibility:hidden">Unseen</button>
       <button id=under>Under</button><div id=over style="position:fixed;inset:0;display:none">A veil</div><button id=gone>Gone</button>
       <button style="position:absolute;left:-500px">Far</button>`,
    );
    const many = await page.run("click", { name: "Same" });
    expect(many).toMatchObject({
      error: { code: "element_ambiguous", details: [{ actual: expect.stringMatching(/^button "Same" \(e\d+_/) }, {}] },
    });
    expect(await page.failure("click", { name: "nowhere" })).toBe("element_not_found");
    expect(await page.failure("click", { name: "Unseen" })).toBe("element_not_visible");
    expect(await page.failure("click", {})).toBe("arguments_invalid");
    const unusable = ["Off", "Off too", "Off as well", "Far"].map((name) => page.failure("click", { name, exact: true }));
    expect(await Promise.all(unusable)).toEqual(["element_disabled", "element_disabled", "element_disabled", "element_covered"]);
    const [gone] = await matchesOf(page, { name: "Gone" });
    await page.page.evaluate(() => document.querySelector("#gone")?.remove());
    expect(await page.failure("click", { ref: gone?.["ref"] })).toBe("element_stale");
    await page.page.evaluate(() => document.querySelector<HTMLElement>("#over")?.style.removeProperty("display"));
    const covered = await page.run("click", { name: "Under" });
    expect(covered).toMatchObject({ error: { code: "element_covered", message: expect.stringContaining("div") } });
    // What becomes usable while it waits is clicked.
    const waiting = page.result("click", { name: "Under" });
    await page.page.evaluate(() => setTimeout(() => document.querySelector("#over")?.remove(), 300));
    expect(await waiting).toMatchObject({ element: { name: "Under" } });
  });

  it("click reaches into a frame of the same origin, unless something lies over the frame (B1)", async () => {
    const page = await openToolPage(
      browser,
      `<p style="height:2000px">far down</p><iframe style="border:9px solid;height:90px" srcdoc="<p style='height:500px'>deep</p><button onclick='parent.clicked = 1'>In</button>"></iframe>
       <div id=over style="position:fixed;inset:0;display:none">A veil</div>`,
    );
    await page.page.frames()[1]?.waitForLoadState();
    expect(await page.result("click", { name: "In" })).toMatchObject({ element: { name: "In" } });
    expect(await page.page.evaluate("clicked")).toBe(1);
    await page.page.evaluate(() => document.querySelector<HTMLElement>("#over")?.style.removeProperty("display"));
    expect(await page.failure("click", { name: "In" })).toBe("element_covered");
  });

  it("a reference is not taken for an element of another load of the page (B1)", async () => {
    const page = await openToolPage(browser, "<button>One</button>");
    const [one] = await matchesOf(page, { role: "button" });
    expect(await page.result("click", { ref: one?.["ref"] })).toMatchObject({ element: { ref: one?.["ref"] } });
    await page.page.reload();
    expect(await matchesOf(page, { role: "button" })).toMatchObject([
      { name: "One", ref: expect.not.stringContaining(String(one?.["ref"])) },
    ]);
    expect(await page.failure("click", { ref: one?.["ref"] })).toBe("element_stale");
    expect(await page.failure("click", { ref: "e1" })).toBe("element_stale");
  });

  it("fill sets every kind of field as a person would (B1)", async () => {
    const page = await openToolPage(
      browser,
      `<input aria-label=text value=old><textarea aria-label=area></textarea><input aria-label=number type=number><input aria-label=date type=date>
       <input aria-label=colour type=color><input aria-label=box type=checkbox><input aria-label=r1 type=radio name=r><input aria-label=r2 type=radio name=r>
       <select aria-label=one><option value=p>Post<option value=c>Courier<option disabled>Boat</select>
       <select aria-label=many multiple><option>a<option>b<option>c</select><div aria-label=editor contenteditable><b>old</b></div>
       <div role=switch aria-label=dark aria-checked=false tabindex=0 onclick="this.ariaChecked = this.ariaChecked !== 'true'">o</div>
       <script>var log = []; for (const type of ["focusin", "beforeinput", "input", "change"])
         document.addEventListener(type, (event) => log.push(event.target.ariaLabel + " " + event.type));</script>`,
    );
    const log = () => page.page.evaluate(() => (globalThis as unknown as { log: string[] }).log.splice(0));
    const fill = async (name: string, value: unknown) => {
      const { element } = (await page.result("fill", { selector: `[aria-label=${name}]`, value })) as {
        element: { value?: string; checked?: boolean };
      };
      return element.value ?? element.checked;
    };
    expect(await fill("text", "new 😀")).toBe("new 😀");
    expect(await log()).toEqual(["text focusin", "text input", "text change"]);
    expect(await fill("text", "")).toBe("");
    expect(await fill("area", "one\ntwo")).toBe("one\ntwo");
    expect(await fill("number", "12.5")).toBe("12.5");
    expect(await fill("date", "2030-01-31")).toBe("2030-01-31");
    expect(await fill("colour", "#ff0000")).toBe("#ff0000");
    await log();
    expect(await fill("box", true)).toBe(true);
    expect(await log()).toEqual(["box focusin", "box input", "box change"]);
    expect(await fill("box", true)).toBe(true);
    expect(await log()).toEqual([]);
    expect(await fill("box", "false")).toBe(false);
    expect(await fill("r2", true)).toBe(true);
    expect(await page.failure("fill", { name: "r2", value: false })).toBe("value_invalid");
    expect(await fill("dark", true)).toBe(true);
    expect(await fill("one", "courier")).toBe("Courier");
    expect(await page.page.inputValue("[aria-label=one]")).toBe("c");
    expect(await fill("one", "p")).toBe("Post");
    expect(await fill("many", ["a", "c"])).toBe("a, c");
    expect(await fill("many", [])).toBe("");
    await log();
    expect(await fill("editor", "hello <b>")).toBe("hello <b>");
    expect(await log()).toEqual(["editor focusin", "editor beforeinput", "editor input"]);
  });

  it("fill refuses what a field cannot hold, and leaves it as it was (B1)", async () => {
    const page = await openToolPage(
      browser,
      `<input aria-label=number type=number value=5><input aria-label=colour type=color value=#00ff00><input aria-label=range type=range value=7>
       <input aria-label=short maxlength=3 value=abc><input aria-label=fixed readonly value=x>
       <input aria-label=file type=file><button>b</button><select aria-label=one><option>Post<option disabled>Boat</select><input aria-label=off disabled>
       <input aria-label=held type=checkbox onclick="return false">`,
    );
    const code = (name: string, value: unknown) => page.failure("fill", { selector: `[aria-label=${name}]`, value });
    expect(await code("number", "many")).toBe("value_invalid");
    expect(await page.page.inputValue("[aria-label=number]")).toBe("5");
    expect(await code("number", true)).toBe("value_invalid");
    expect([await code("colour", "reddish"), await code("range", "500")]).toEqual(["value_invalid", "value_invalid"]);
    expect([await page.page.inputValue("[aria-label=colour]"), await page.page.inputValue("[aria-label=range]")]).toEqual(["#00ff00", "7"]);
    expect(await code("short", "abcd")).toBe("value_invalid");
    expect(await code("fixed", "y")).toBe("element_read_only");
    expect(await code("file", "/etc/passwd")).toBe("field_not_fillable");
    expect(await page.failure("fill", { role: "button", value: "x" })).toBe("field_not_fillable");
    expect(await code("one", "Boat")).toBe("element_disabled");
    expect(await page.run("fill", { name: "one", value: "Train" })).toMatchObject({
      error: { code: "option_not_found", details: [{ expected: "Post" }, { expected: "Boat" }] },
    });
    expect(await code("one", ["Post", "Boat"])).toBe("value_invalid");
    expect(await code("off", "x")).toBe("element_disabled");
    expect(await code("held", true)).toBe("value_invalid");
  });

  it("fill is seen by a framework that watches its fields' setters, as React does (B1)", async () => {
    const page = await openToolPage(
      browser,
      `<input aria-label=name><output></output><script>
         const field = document.querySelector("input"), shown = document.querySelector("output");
         // The framework's own setter notes what it wrote; input events that bring the noted value are no news to it.
         const native = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value");
         let noted = "";
         Object.defineProperty(field, "value", { configurable: true, get() { return native.get.call(this) }, set(value) { noted = value; native.set.call(this, value) } });
         document.addEventListener("input", () => { if (native.get.call(field) !== noted) { noted = native.get.call(field); shown.textContent = noted } });
       </script>`,
    );
    await page.result("fill", { label: "name", value: "Ann" });
    expect(await page.page.textContent("output")).toBe("Ann");
  });
});
