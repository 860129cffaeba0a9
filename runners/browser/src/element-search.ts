/**
 * Looks for elements by what a person would say of them.
 *
 * One walk over what the page shows, open shadow trees and frames of the same origin included. Invariants: changes nothing; bounded
 * in nodes, depth and time, and says when a bound cut it; matches come in the order of the page, each once.
 */
import { ToolError } from "@toolrunner/runner-sdk";
import { isEditingHost, isField, isSilent, isVisible, labelsOf, nameOf, oneLine, roleOf, TEXT_CHARACTERS } from "./element-facts.js";
import * as dom from "./native-dom.js";
import { PAGE_DEPTH, PAGE_NODES } from "./page-text.js";

/** How long one search may take, ms. */
export const SEARCH_MS = 3_000;
/** Matches that are kept; more are only counted. */
export const MATCHES_KEPT = 200;

/** What is looked for; each one that is given must hold. Texts are compared without regard to case and white space. */
export interface Criteria {
  readonly role?: string;
  /** Part of the accessible name. */
  readonly name?: string;
  /** Part of the text; of elements within one another the innermost counts. */
  readonly text?: string;
  /** Part of a field's label, placeholder or title. */
  readonly label?: string;
  /** CSS selector, within one tree: it does not reach across shadow roots or frames. */
  readonly selector?: string;
  /** Whole texts instead of parts. */
  readonly exact?: boolean;
  /** Also what nobody sees. */
  readonly hidden?: boolean;
}

/** What was found. */
export interface Search {
  /** The first {@link MATCHES_KEPT}, in the order of the page. */
  readonly elements: readonly Element[];
  readonly total: number;
  /** True when the page was too large to be looked at as a whole. */
  readonly isCut: boolean;
}

/** Looks through a page. @throws ToolError `selector_invalid` */
export function searchPage(document: Document, criteria: Criteria): Search {
  const root = dom.documentElementOf(document);
  if (criteria.selector !== undefined && root !== null) checkSelector(root, criteria.selector);
  const walk = new PageWalk(criteria);
  walk.enterDocument(document, 0);
  const found = walk.found.sort((a, b) => a.order - b.order);
  return { elements: found.slice(0, MATCHES_KEPT).map(({ element }) => element), total: found.length, isCut: walk.isCut };
}

function checkSelector(root: Element, selector: string): void {
  try {
    dom.matchesSelector(root, selector);
  } catch {
    throw new ToolError("selector_invalid", `${JSON.stringify(selector.slice(0, 200))} is no CSS selector that this browser takes.`);
  }
}

interface Found {
  readonly element: Element;
  readonly order: number;
}

class PageWalk {
  isCut = false;
  found: Found[] = [];
  readonly #role: string | undefined;
  readonly #name: (text: string) => boolean;
  readonly #text: (text: string) => boolean;
  readonly #label: (text: string) => boolean;
  #nodes = 0;
  readonly #until = performance.now() + SEARCH_MS;

  constructor(private readonly criteria: Criteria) {
    this.#role = criteria.role?.trim().toLowerCase();
    this.#name = matcherOf(criteria.name, criteria.exact === true);
    this.#text = matcherOf(criteria.text, criteria.exact === true);
    this.#label = matcherOf(criteria.label, criteria.exact === true);
  }

  enterDocument(document: Document, depth: number): void {
    const root = dom.documentElementOf(document);
    if (root !== null) this.#visit(root, depth);
  }

  /** Looks at a node and what is in it. The answer is its text, as far as it is compared. */
  #visit(node: Node, depth: number): string {
    this.#nodes += 1;
    if (depth > PAGE_DEPTH || this.#nodes > PAGE_NODES || (this.#nodes % 512 === 0 && performance.now() > this.#until)) this.isCut = true;
    if (this.isCut) return "";
    if (dom.nodeTypeOf(node) === 3) return dom.nodeValueOf(node) ?? "";
    if (!dom.isElement(node)) return "";
    const tag = dom.tagOf(node);
    const order = this.#nodes;
    const foundBefore = this.found.length;
    let text = tag === "IMG" ? ` ${dom.attributeOf(node, "alt") ?? ""} ` : "";
    if (tag === "IFRAME" || tag === "FRAME") {
      const inside = dom.documentInside(node);
      if (inside !== null) this.enterDocument(inside, depth + 1);
    } else if (!isSilent(tag)) {
      for (const child of dom.shownChildrenOf(node)) {
        const more = this.#visit(child, depth + 1);
        if (text.length < TEXT_CHARACTERS) text += more;
        if (this.isCut) break;
      }
      if (BREAKS.has(tag)) text = ` ${text} `;
    }
    text = text.slice(0, TEXT_CHARACTERS);
    // Of elements within one another that hold the text, the innermost is meant.
    const isOuter = this.criteria.text !== undefined && this.found.length > foundBefore;
    if (!isOuter && this.#matches(node, text)) this.found.push({ element: node, order });
    return text;
  }

  #matches(element: Element, text: string): boolean {
    const { criteria } = this;
    if (criteria.selector !== undefined && !dom.matchesSelector(element, criteria.selector)) return false;
    const role = this.#role === undefined && criteria.name === undefined ? "" : roleOf(element);
    if (this.#role !== undefined && role !== this.#role) return false;
    if (criteria.text !== undefined && !this.#text(oneLine(text))) return false;
    if (criteria.label !== undefined && !((isField(element) || isEditingHost(element)) && labelsOf(element).some(this.#label)))
      return false;
    if (criteria.name !== undefined && !this.#name(nameOf(element, role, text))) return false;
    return criteria.hidden === true || isVisible(element);
  }
}

/** Elements whose text stands apart from what is beside it. */
const BREAKS = new Set(
  "ADDRESS ARTICLE ASIDE BLOCKQUOTE BR DD DIV DL DT FIELDSET FIGURE FOOTER FORM H1 H2 H3 H4 H5 H6 HEADER HR LI MAIN NAV OL OPTION P PRE SECTION TABLE TD TH TR UL".split(
    " ",
  ),
);

function matcherOf(wanted: string | undefined, isExact: boolean): (text: string) => boolean {
  if (wanted === undefined) return () => true;
  const folded = oneLine(wanted).toLowerCase();
  return isExact ? (text) => text.toLowerCase() === folded : (text) => text.toLowerCase().includes(folded);
}
