/**
 * The few members of a page's DOM that the page tools use. A real `Document` has them all; tests build small trees.
 */
import * as dom from "./native-dom.js";

/** A node: element, text or anything else. */
export interface PageNode {
  /** 1 for elements, 3 for text. */
  readonly nodeType: number;
  readonly nodeValue: string | null;
  readonly childNodes: ArrayLike<PageNode>;
  readonly tagName?: string;
  getAttribute?(name: string): string | null;
  /** Open shadow tree; what it shows stands in place of the children. */
  readonly shadowRoot?: { readonly childNodes: ArrayLike<PageNode> } | null;
  /** Of a `slot`: what is shown in it. */
  assignedNodes?(): readonly PageNode[];
}

/** The computed style of an element, as far as it hides things. */
export interface PageStyle {
  readonly display: string;
  readonly visibility: string;
  readonly opacity: string;
}

/** What a node of a real page is read by; small trees are read by their members. */
const isReal = typeof Node !== "undefined";

/** 1 for elements, 3 for text. */
export function typeOfNode(node: PageNode): number {
  return isReal ? dom.nodeTypeOf(node as unknown as Node) : node.nodeType;
}

/** Upper-case name of an element. */
export function nameOfNode(node: PageNode): string {
  return (isReal ? dom.tagNameOf(node as unknown as Element) : (node.tagName ?? "")).toUpperCase();
}

/** An attribute of an element; null when it is not there. */
export function attributeOfNode(node: PageNode, name: string): string | null {
  return isReal ? dom.attributeOf(node as unknown as Element, name) : (node.getAttribute?.(name) ?? null);
}

/** What is shown in an element: of its open shadow tree, of a slot what is put in it, else its children. */
export function shownInNode(node: PageNode): Iterable<PageNode> {
  if (isReal) return dom.shownChildrenOf(node as unknown as Node) as Iterable<unknown> as Iterable<PageNode>;
  const assigned = nameOfNode(node) === "SLOT" ? (node.assignedNodes?.() ?? []) : [];
  return assigned.length > 0 ? assigned : Array.from((node.shadowRoot ?? node).childNodes);
}

/** The body of the document in a frame, where it is of the same origin. */
export function bodyInFrame(node: PageNode): PageNode | null {
  const inside = isReal ? dom.documentInside(node as unknown as Element) : null;
  return inside === null ? null : (dom.bodyOf(inside) as PageNode | null);
}

/** A page. */
export interface PageDocument {
  readonly title: string;
  readonly baseURI: string;
  readonly body: PageNode | null;
  /** Without one (a document that is not shown) only attributes and tag names hide things. */
  readonly defaultView: { getComputedStyle(element: never): PageStyle } | null;
}

/** The page, with a real one read by the platform: a page hides its own members where it names an image or form after them. */
export function pageOf(document: PageDocument): PageDocument {
  if (!isReal) return document;
  const real = document as unknown as Document;
  return {
    title: dom.titleOf(real),
    baseURI: dom.baseUriOf(real),
    body: dom.bodyOf(real) as PageNode | null,
    defaultView: dom.viewOf(real) === null ? null : { getComputedStyle: (element: Element) => dom.computedStyleOf(element) as PageStyle },
  };
}
