/**
 * Turns what a page shows into text.
 *
 * Invariants: changes nothing on the page; leaves out what a person cannot see, and every value of a form field; headings, links,
 * lists and table cells keep a mark; bounded in text, nodes and depth, and says so.
 */
import {
  attributeOfNode as attribute,
  bodyInFrame,
  nameOfNode,
  type PageDocument,
  type PageNode,
  type PageStyle,
  shownInNode,
  typeOfNode,
} from "./page-dom.js";

/** Characters of a page that are read. */
export const PAGE_CHARACTERS = 1_000_000;
/** Nodes of a page that are looked at. */
export const PAGE_NODES = 500_000;
/** Levels of a page that are looked at. */
export const PAGE_DEPTH = 1_000;

const ELEMENT = 1;
const TEXT = 3;
const LEFT_OUT = new Set([
  "SCRIPT",
  "STYLE",
  "NOSCRIPT",
  "TEMPLATE",
  "HEAD",
  "SVG",
  "CANVAS",
  "OBJECT",
  "AUDIO",
  "VIDEO",
  "TEXTAREA",
  "SELECT",
  "DATALIST",
]);
const BLOCKS = new Set(
  "ADDRESS ARTICLE ASIDE BLOCKQUOTE DD DETAILS DIALOG DIV DL DT FIELDSET FIGCAPTION FIGURE FOOTER FORM H1 H2 H3 H4 H5 H6 HEADER HR LI MAIN NAV OL P PRE SECTION SUMMARY TABLE TR UL".split(
    " ",
  ),
);

/** The text of a page. */
export interface PageText {
  readonly text: string;
  /** True when a bound was reached and the rest is left out. */
  readonly isCut: boolean;
}

/** Reads what the page shows. */
export function pageText(document: PageDocument): PageText {
  const reader = new PageReader(document);
  if (document.body !== null) reader.read(document.body, { depth: 0, isPreformatted: false, isShown: true });
  return { text: reader.text(), isCut: reader.isCut };
}

interface Surroundings {
  readonly depth: number;
  readonly isPreformatted: boolean;
  /** False inside `visibility: hidden`, which a child may take back. */
  readonly isShown: boolean;
}

class PageReader {
  isCut = false;
  readonly #document: PageDocument;
  #pieces: string[] = [];
  #characters = 0;
  #nodes = 0;

  constructor(document: PageDocument) {
    this.#document = document;
  }

  text(): string {
    return this.#pieces
      .join("")
      .split("\n")
      .map((line) => line.trimEnd())
      .join("\n")
      .replace(/\n{3,}/g, "\n\n")
      .trim();
  }

  read(node: PageNode, around: Surroundings): void {
    this.#nodes += 1;
    if (this.#nodes > PAGE_NODES || around.depth > PAGE_DEPTH || this.#characters > PAGE_CHARACTERS) {
      this.isCut = true;
    } else if (typeOfNode(node) === TEXT) {
      if (around.isShown) this.#write(around.isPreformatted ? (node.nodeValue ?? "") : (node.nodeValue ?? "").replace(/\s+/g, " "));
    } else if (typeOfNode(node) === ELEMENT) {
      this.#readElement(node, around);
    }
  }

  #readElement(element: PageNode, around: Surroundings): void {
    const tag = nameOfNode(element);
    if (LEFT_OUT.has(tag) || attribute(element, "hidden") !== null) return;
    const style = this.#styleOf(element);
    if (style !== undefined && (style.display === "none" || style.opacity === "0")) return;
    const inside: Surroundings = {
      depth: around.depth + 1,
      isPreformatted: around.isPreformatted || tag === "PRE",
      isShown: style === undefined ? around.isShown : style.visibility === "visible",
    };
    if (tag === "BR") this.#write("\n");
    else if (tag === "HR") this.#write("\n---\n");
    else if (tag === "IMG") this.#readImage(element, inside.isShown);
    else if (tag === "INPUT") this.#readButton(element, inside.isShown);
    else if (tag === "IFRAME") this.#readFrame(element, inside);
    else if (tag === "A") this.#readLink(element, inside);
    else if (BLOCKS.has(tag)) this.#readBlock(element, tag, inside);
    else {
      this.#readChildren(element, inside, tag);
      if (tag === "TD" || tag === "TH") this.#write(" | ");
    }
  }

  #readBlock(element: PageNode, tag: string, inside: Surroundings): void {
    const isHeading = /^H[1-6]$/.test(tag);
    const isTight = tag === "LI" || tag === "TR" || tag === "DT" || tag === "DD";
    const mark = isHeading ? `${"#".repeat(Number(tag[1]))} ` : tag === "LI" ? "- " : "";
    const before = this.#pieces.length;
    this.#readChildren(element, inside, tag);
    const content = this.#pieces.splice(before).join("");
    const text = inside.isPreformatted ? content.replace(/^\n+/, "").trimEnd() : content.trim();
    const gap = isTight ? "\n" : "\n\n";
    if (text === "") return;
    // Items and rows that follow one another stand on lines of their own, without a blank one between.
    if (!(isTight && this.#pieces.at(-1) === "\n")) this.#pieces.push(gap);
    this.#pieces.push(mark, isHeading ? text.replace(/\s+/g, " ") : text, gap);
  }

  #readLink(element: PageNode, inside: Surroundings): void {
    const before = this.#pieces.length;
    this.#readChildren(element, inside, "A");
    const content = this.#pieces.splice(before).join("").replace(/\s+/g, " ");
    const target = this.#addressOf(attribute(element, "href"));
    if (target === undefined || content.trim() === "") this.#pieces.push(content);
    else this.#write(`[${content.trim()}](${target})`);
  }

  #readFrame(element: PageNode, inside: Surroundings): void {
    const body = inside.isShown ? bodyInFrame(element) : null;
    if (body === null) return;
    this.#write("\n\n");
    this.read(body, inside);
    this.#write("\n\n");
  }

  #readImage(element: PageNode, isShown: boolean): void {
    const description = attribute(element, "alt") ?? "";
    if (isShown && description !== "") this.#write(`[image: ${description}]`);
  }

  /** The label of a button; what is typed into fields is not read. */
  #readButton(element: PageNode, isShown: boolean): void {
    const type = (attribute(element, "type") ?? "").toLowerCase();
    if (isShown && ["button", "submit", "reset"].includes(type)) this.#write(` ${attribute(element, "value") ?? type} `);
  }

  #readChildren(element: PageNode, inside: Surroundings, tag: string): void {
    const isClosed = tag === "DETAILS" && attribute(element, "open") === null;
    for (const child of shownInNode(element)) {
      if (this.isCut) return;
      if (isClosed && !isSummary(child)) continue;
      this.read(child, inside);
    }
  }

  #styleOf(element: PageNode): PageStyle | undefined {
    return this.#document.defaultView?.getComputedStyle(element as never);
  }

  /** Absolute address of a link; undefined for one that runs a script or leads nowhere. */
  #addressOf(href: string | null): string | undefined {
    if (href === null) return undefined;
    try {
      const address = new URL(href, this.#document.baseURI);
      return address.protocol === "javascript:" || address.protocol === "data:" ? undefined : address.href;
    } catch {
      return undefined;
    }
  }

  #write(text: string): void {
    this.#characters += text.length;
    this.#pieces.push(text);
  }
}

function isSummary(node: PageNode): boolean {
  return typeOfNode(node) === ELEMENT && nameOfNode(node) === "SUMMARY";
}
