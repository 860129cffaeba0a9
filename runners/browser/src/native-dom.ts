/**
 * The platform's own DOM functions, as they were when this module was loaded.
 *
 * A page may replace them later, and a form hides them without meaning to (`<input name="tagName">` makes `form.tagName` that field):
 * what is read here is read by the platform's getters. Invariant: nothing here calls what an element or the page says its functions are.
 */
const { apply } = Reflect;

/** Undefined where there is no DOM: tests of small trees, rendering on a server. */
const scope = globalThis as Partial<typeof globalThis>;

function getter<Target, Value>(prototype: object | undefined, name: string): ((target: Target) => Value) | undefined {
  const get = prototype === undefined ? undefined : Object.getOwnPropertyDescriptor(prototype, name)?.get;
  return get === undefined ? undefined : (target) => apply(get, target, []) as Value;
}

function setter<Target, Value>(prototype: object | undefined, name: string): (target: Target, value: Value) => void {
  const set = prototype === undefined ? undefined : Object.getOwnPropertyDescriptor(prototype, name)?.set;
  return (target, value) => {
    if (set !== undefined) apply(set, target, [value]);
  };
}

function method<Target, Arguments extends readonly unknown[], Value>(
  prototype: object | undefined,
  name: string,
): ((target: Target, ...args: Arguments) => Value) | undefined {
  const found: unknown = prototype === undefined ? undefined : Reflect.get(prototype, name);
  return typeof found === "function" ? (target, ...args) => apply(found, target, args) as Value : undefined;
}

/** Stands in where the platform lacks a function: reads nothing. */
const none =
  <Value>(value: Value) =>
  (): Value =>
    value;

const node = scope.Node?.prototype;
const element = scope.Element?.prototype;
const html = scope.HTMLElement?.prototype;
const input = scope.HTMLInputElement?.prototype;
const textarea = scope.HTMLTextAreaElement?.prototype;

export const nodeTypeOf = getter<Node, number>(node, "nodeType") ?? none(0);
export const nodeValueOf = getter<Node, string | null>(node, "nodeValue") ?? none(null);
export const firstChildOf = getter<Node, ChildNode | null>(node, "firstChild") ?? none(null);
export const nextSiblingOf = getter<Node, ChildNode | null>(node, "nextSibling") ?? none(null);
export const parentNodeOf = getter<Node, ParentNode | null>(node, "parentNode") ?? none(null);
export const ownerDocumentOf = getter<Node, Document | null>(node, "ownerDocument") ?? none(null);
export const isConnected = getter<Node, boolean>(node, "isConnected") ?? none(false);
export const rootOf = method<Node, [], Node>(node, "getRootNode") ?? ((target: Node) => target);
export const tagNameOf = getter<Element, string>(element, "tagName") ?? none("");
export const shadowRootOf = getter<Element, ShadowRoot | null>(element, "shadowRoot") ?? none(null);
export const assignedSlotOf = getter<Element, HTMLSlotElement | null>(element, "assignedSlot") ?? none(null);
export const attributeOf = method<Element, [string], string | null>(element, "getAttribute") ?? none(null);
export const matchesSelector = method<Element, [string], boolean>(element, "matches") ?? none(false);
export const rectsOf = method<Element, [], DOMRectList>(element, "getClientRects") ?? none([] as unknown as DOMRectList);
export const scrollToElement = method<Element, [ScrollIntoViewOptions], void>(element, "scrollIntoView") ?? none(undefined);
export const checkVisibility = method<Element, [CheckVisibilityOptions], boolean>(element, "checkVisibility");
export const dispatch = method<EventTarget, [Event], boolean>(scope.EventTarget?.prototype, "dispatchEvent") ?? none(false);
export const focusHtml = method<Element, [FocusOptions], void>(html, "focus") ?? none(undefined);
export const isContentEditable = getter<Element, boolean>(html, "isContentEditable") ?? none(false);
export const assignedNodesOf =
  method<HTMLSlotElement, [AssignedNodesOptions], Node[]>(scope.HTMLSlotElement?.prototype, "assignedNodes") ?? none([] as Node[]);
export const hostOf = getter<Node, Element>(scope.ShadowRoot?.prototype, "host") ?? none(null as unknown as Element);
export const frameDocumentOf = getter<Element, Document | null>(scope.HTMLIFrameElement?.prototype, "contentDocument") ?? none(null);

export const inputTypeOf = getter<Element, string>(input, "type") ?? none("");
export const inputValueOf = getter<Element, string>(input, "value") ?? none("");
export const setInputValue = setter<Element, string>(input, "value");
export const isInputChecked = getter<Element, boolean>(input, "checked") ?? none(false);
export const isInputReadOnly = getter<Element, boolean>(input, "readOnly") ?? none(false);
export const inputMaxLengthOf = getter<Element, number>(input, "maxLength") ?? none(-1);
export const inputLabelsOf = getter<Element, NodeListOf<HTMLLabelElement> | null>(input, "labels") ?? none(null);
export const textareaValueOf = getter<Element, string>(textarea, "value") ?? none("");
export const setTextareaValue = setter<Element, string>(textarea, "value");
export const isTextareaReadOnly = getter<Element, boolean>(textarea, "readOnly") ?? none(false);
export const textareaMaxLengthOf = getter<Element, number>(textarea, "maxLength") ?? none(-1);
export const textareaLabelsOf = getter<Element, NodeListOf<HTMLLabelElement> | null>(textarea, "labels") ?? none(null);
const select = scope.HTMLSelectElement?.prototype;
export const selectOptionsOf = getter<Element, HTMLOptionsCollection>(select, "options") ?? none([] as unknown as HTMLOptionsCollection);
export const isSelectMultiple = getter<Element, boolean>(select, "multiple") ?? none(false);
export const selectLabelsOf = getter<Element, NodeListOf<HTMLLabelElement> | null>(select, "labels") ?? none(null);

const page = scope.Document?.prototype;
const shadow = scope.ShadowRoot?.prototype;
export const documentElementOf = getter<Document, HTMLElement | null>(page, "documentElement") ?? none(null);
export const bodyOf = getter<Document, HTMLElement | null>(page, "body") ?? none(null);
export const titleOf = getter<Document, string>(page, "title") ?? none("");
export const viewOf = getter<Document, Window | null>(page, "defaultView") ?? none(null);
export const baseUriOf = getter<Node, string>(node, "baseURI") ?? none("");
export const selectionOf = method<Document, [], Selection | null>(page, "getSelection") ?? none(null);
export const execCommand = method<Document, [string, boolean, string], boolean>(page, "execCommand") ?? none(false);
const elementInDocument = method<Document, [number, number], Element | null>(page, "elementFromPoint") ?? none(null);
const elementInShadow = method<ShadowRoot, [number, number], Element | null>(shadow, "elementFromPoint") ?? none(null);
const activeInDocument = getter<Document, Element | null>(page, "activeElement") ?? none(null);
const activeInShadow = getter<ShadowRoot, Element | null>(shadow, "activeElement") ?? none(null);
const byIdInDocument = method<Document, [string], Element | null>(page, "getElementById") ?? none(null);
const byIdInFragment =
  method<DocumentFragment, [string], Element | null>(scope.DocumentFragment?.prototype, "getElementById") ?? none(null);
const styleOf = method<object, [Element], CSSStyleDeclaration>(scope, "getComputedStyle");

/** The style that an element has in the end; undefined where there are no styles. */
export function computedStyleOf(target: Element): CSSStyleDeclaration | undefined {
  return styleOf?.(scope, target);
}

/** The innermost element of a document or shadow tree at a point of the window. */
export function elementAtPoint(root: Document | ShadowRoot, x: number, y: number): Element | null {
  return isShadowRoot(root) ? elementInShadow(root, x, y) : elementInDocument(root, x, y);
}

/** The element that has the focus in a document or shadow tree; null when `root` is the top of something that is on no page. */
export function activeElementOf(root: Node): Element | null {
  if (isShadowRoot(root)) return activeInShadow(root);
  return nodeTypeOf(root) === 9 ? activeInDocument(root as Document) : null;
}

/** The element with an id, beside `target`: in its document, shadow tree or detached fragment. */
export function elementById(target: Node, id: string): Element | null {
  const root = rootOf(target);
  if (nodeTypeOf(root) === 9) return byIdInDocument(root as Document, id);
  return nodeTypeOf(root) === 11 ? byIdInFragment(root as DocumentFragment, id) : null;
}

/** The platform's constructors of the events that a person's input makes. */
export const EVENTS = {
  MouseEvent: scope.MouseEvent,
  PointerEvent: scope.PointerEvent,
  InputEvent: scope.InputEvent,
  Event: scope.Event,
} as const;

/** Whether it is an element, of this page or of a frame in it. */
export function isElement(target: Node): target is Element {
  return nodeTypeOf(target) === 1;
}

/** Whether it is the root of a shadow tree. */
export function isShadowRoot(target: Node): target is ShadowRoot {
  return nodeTypeOf(target) === 11 && scope.ShadowRoot !== undefined && shadowHost(target) !== null;
}

function shadowHost(target: Node): Element | null {
  try {
    return hostOf(target);
  } catch {
    // A fragment that is no shadow tree.
    return null;
  }
}

/** Upper-case name of the element, as HTML has it. */
export function tagOf(target: Element): string {
  return tagNameOf(target).toUpperCase();
}

/** What holds the node on the screen: slot before parent, host of a shadow tree; null at the document. */
export function shownParentOf(target: Node): Element | null {
  const slot = isElement(target) ? assignedSlotOf(target) : null;
  const parent: Node | null = slot ?? parentNodeOf(target);
  if (parent === null) return null;
  if (isElement(parent)) return parent;
  return isShadowRoot(parent) ? shadowHost(parent) : null;
}

/** The children that are shown in its place: of its open shadow tree, of a slot what is put in it. In the order of the page. */
export function* shownChildrenOf(target: Node): Generator<Node> {
  if (isElement(target)) {
    const shadow = shadowRootOf(target);
    if (tagOf(target) === "SLOT") {
      const assigned = assignedNodesOf(target as HTMLSlotElement, {});
      if (assigned.length > 0) {
        yield* assigned;
        return;
      }
    }
    if (shadow !== null) {
      yield* childrenOf(shadow);
      return;
    }
  }
  yield* childrenOf(target);
}

function* childrenOf(target: Node): Generator<Node> {
  for (let child = firstChildOf(target); child !== null; child = nextSiblingOf(child)) yield child;
}

/** The document of a frame, where it is of the same origin and loaded. */
export function documentInside(frame: Element): Document | null {
  try {
    return frameDocumentOf(frame);
  } catch {
    return null;
  }
}
