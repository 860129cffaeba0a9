import { createRunner, type ToolContext, type Transport } from "@toolrunner/runner-sdk";
import { describe, expect, it } from "vitest";
import type { PageDocument, PageNode, PageStyle } from "./page-dom.js";
import { PAGE_NODES, pageText } from "./page-text.js";
import { pageTools, type ReadPageResult, readPage, readPageTool } from "./page-tools.js";

type Attributes = Readonly<Record<string, string>>;
interface Element extends PageNode {
  readonly attributes: Attributes;
}

const text = (value: string): PageNode => ({ nodeType: 3, nodeValue: value, childNodes: [] });
const comment = (value: string): PageNode => ({ nodeType: 8, nodeValue: value, childNodes: [] });
const el = (tagName: string, attributes: Attributes, ...children: (PageNode | string)[]): Element => ({
  nodeType: 1,
  nodeValue: null,
  tagName: tagName.toUpperCase(),
  attributes,
  childNodes: children.map((child) => (typeof child === "string" ? text(child) : child)),
  getAttribute: (name) => attributes[name] ?? null,
});

/** A page whose computed styles are what `style` attributes spell out; visibility is inherited, as in a browser. */
function page(...children: (PageNode | string)[]): PageDocument {
  const body = el("body", {}, ...children);
  const parents = new Map<PageNode, PageNode>();
  const adopt = (node: PageNode): void => {
    for (const child of Array.from(node.childNodes)) {
      parents.set(child, node);
      adopt(child);
    }
  };
  adopt(body);
  const declared = (node: PageNode, property: string): string | undefined =>
    new RegExp(`${property}:\\s*([\\w.]+)`).exec(node.getAttribute?.("style") ?? "")?.[1];
  const visibility = (node: PageNode): string => {
    const parent = parents.get(node);
    return declared(node, "visibility") ?? (parent === undefined ? "visible" : visibility(parent));
  };
  return {
    title: "A page",
    baseURI: "https://shop.test/orders/list?token=secret#top",
    body,
    defaultView: {
      getComputedStyle: (element: PageNode): PageStyle => ({
        display: declared(element, "display") ?? "block",
        visibility: visibility(element),
        opacity: declared(element, "opacity") ?? "1",
      }),
    },
  };
}

/** Checked by the compiler: a browser's document has the members that are used. */
export const takesRealDocument = (document: Document) => pageTools(document);

describe("the text of a page (B1)", () => {
  it("keeps headings, links, lists, tables and preformatted text", () => {
    const document = page(
      el("h1", {}, "  Orders\n ", el("em", {}, "today"), " "),
      el(
        "p",
        {},
        "See ",
        el("a", { href: "/orders/1?x=1" }, el("b", {}, "order 1")),
        " and ",
        el("a", { href: "javascript:alert(1)" }, "run"),
        ".",
        el("br", {}),
        "Bye",
      ),
      el("ul", {}, el("li", {}, "one"), el("li", {}, "two")),
      el("table", {}, el("tr", {}, el("th", {}, "a"), el("th", {}, "b")), el("tr", {}, el("td", {}, "1"), el("td", {}, "2"))),
      el("pre", {}, "  keep\n    this"),
      el("img", { alt: "a cat" }),
    );
    expect(pageText(document).text).toBe(
      "# Orders today\n\nSee [order 1](https://shop.test/orders/1?x=1) and run.\nBye\n\n- one\n- two\n\na | b |\n1 | 2 |\n\n  keep\n    this\n\n[image: a cat]",
    );
  });

  it("leaves out what nobody sees, and what is typed into fields", () => {
    const document = page(
      el("script", {}, "code"),
      el("style", {}, "css"),
      el("noscript", {}, "no"),
      el("template", {}, "no"),
      comment("no"),
      el("div", { hidden: "" }, "no"),
      el("div", { style: "display: none" }, "no"),
      el("div", { style: "opacity: 0" }, "no"),
      el("div", { style: "visibility: hidden" }, "no", el("span", { style: "visibility: visible" }, "shown again")),
      el("details", {}, el("summary", {}, "more"), "no"),
      el("details", { open: "" }, el("summary", {}, "less"), "yes"),
      el("input", { type: "password", value: "secret" }),
      el("input", { type: "submit", value: "Send" }),
      el("textarea", {}, "secret"),
    );
    expect(pageText(document).text.split(/\s*\n\s*/)).toEqual(["shown again", "more", "less", "yes", "Send"]);
  });

  it("reads open shadow trees, and what is shown in their slots", () => {
    const light = text("in the slot");
    const slot: PageNode = { ...el("slot", {}, "fallback"), assignedNodes: () => [light] };
    const host: PageNode = {
      ...el("x-card", {}, light),
      shadowRoot: { childNodes: [el("b", {}, "shadow "), slot, el("slot", {}, " fallback")] },
    };
    expect(pageText(page(host)).text).toBe("shadow in the slot fallback");
  });

  it("reads a document that is not shown, by attributes alone", () => {
    expect(pageText({ ...page("text", el("div", { hidden: "" }, "no")), defaultView: null }).text).toBe("text");
    expect(pageText({ ...page(), body: null }).text).toBe("");
  });

  it("is not slowed down by endless white space", () => {
    const started = performance.now();
    expect(pageText(page(el("pre", {}, `a${" ".repeat(900_000)}b`), el("p", {}, `${"\n".repeat(500_000)}c`))).text).toMatch(/^a +b\n\nc$/);
    expect(performance.now() - started).toBeLessThan(5_000);
  });

  it("is bounded in nodes and depth, and says so", () => {
    let deep: PageNode = el("div", {}, "too deep");
    for (let level = 0; level < 5_000; level += 1) deep = el("div", {}, deep);
    expect(pageText({ ...page(), body: el("body", {}, "top", deep), defaultView: null })).toEqual({ text: "top", isCut: true });
    const wide: PageNode = { ...el("body", {}), childNodes: new Array<PageNode>(PAGE_NODES + 10).fill(text("x")) };
    const cut = pageText({ ...page(), body: wide, defaultView: null });
    expect(cut.isCut).toBe(true);
    expect(cut.text.length).toBeLessThanOrEqual(PAGE_NODES);
  });
});

describe("read_page (B1)", () => {
  it("leaves query and fragment of the address out", () => {
    expect(readPage(page("hello"), 0, 32_768)).toEqual({
      title: "A page",
      address: "https://shop.test/orders/list",
      text: "hello",
      next_offset: null,
      total_characters: 5,
      notes: [],
    });
  });

  it.each([1_024, 5_000])("pages to %i bytes of compact JSON, escapes counted, and loses nothing", (budgetBytes) => {
    const whole = Array.from({ length: 2_000 }, (_, index) => `${index}"é😀\\`).join("");
    const document = page(whole);
    let read = "";
    let pages = 0;
    for (let offset: number | null = 0; offset !== null; pages += 1) {
      const part: ReadPageResult = readPage(document, offset, budgetBytes);
      expect(new TextEncoder().encode(JSON.stringify(part)).length).toBeLessThanOrEqual(budgetBytes);
      expect(part.text).not.toMatch(/[\ud800-\udfff]/u);
      read += part.text;
      offset = part.next_offset;
    }
    expect(read).toBe(whole);
    expect(pages).toBeGreaterThan(3);
  });

  it("fits title and address of any length", () => {
    const document = { ...page("x".repeat(5_000)), title: "\u0001".repeat(9_000), baseURI: `https://shop.test/${"a".repeat(9_000)}` };
    const part = readPage(document, 0, 1_024 + 600);
    expect(JSON.stringify(part).length).toBeLessThanOrEqual(1_624);
    expect(part.text.length).toBeGreaterThan(100);
  });

  it("says that there is no text, here or at all", () => {
    expect(readPage(page(), 0, 1_024).notes).toEqual(["The page shows no text."]);
    expect(readPage(page("abc"), 3, 1_024)).toMatchObject({
      text: "",
      next_offset: null,
      notes: ["There is no text from this offset on."],
    });
  });

  it("is a read-only tool that a runner takes", () => {
    const transport: Transport = { name: "none", carriesCredential: false, connect: () => Promise.reject(new Error("no broker here")) };
    const runner = createRunner({ transport, binding: "tab", subject: "user_1", tools: [readPageTool(page("x"))] });
    expect(runner.handlers).toEqual([
      { tool: "read_page", version: "1", idempotent: true, cancellable: true, readOnly: true, reconciles: false },
    ]);
  });

  it("reads the page as it is at the call, from the offset of the call, and refuses a wrong one", async () => {
    let shown = page(el("h2", {}, "Hi"));
    const tool = readPageTool({
      get title() {
        return shown.title;
      },
      get body() {
        return shown.body;
      },
      baseURI: shown.baseURI,
      defaultView: null,
    });
    const run = async (args: unknown) => tool.run(args, {} as ToolContext);
    expect(await run({})).toMatchObject({ text: "## Hi" });
    shown = page("changed");
    expect(await run({ offset: 2 })).toMatchObject({ text: "anged" });
    for (const offset of [-1, 1.5, "1"])
      await expect(run({ offset })).rejects.toMatchObject({ name: "ToolError", code: "arguments_invalid" });
  });

  it("refuses a byte budget out of bounds", () => {
    expect(() => readPageTool(page(), { maxResultContextBytes: 1_023 })).toThrow(RangeError);
    expect(() => readPageTool(page(), { maxResultContextBytes: 32_769 })).toThrow(RangeError);
  });
});
