/**
 * The few members of a page's DOM that the page tools use. A real `Document` has them all; tests build small trees.
 */

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

/** A page. */
export interface PageDocument {
  readonly title: string;
  readonly baseURI: string;
  readonly body: PageNode | null;
  /** Without one (a document that is not shown) only attributes and tag names hide things. */
  readonly defaultView: { getComputedStyle(element: never): PageStyle } | null;
}
