/**
 * Does to an element what a person's hand would, event for event.
 *
 * Invariants: nothing is done to an element that a person could not use (hidden, disabled, covered), and waiting for it to become
 * usable is bounded; every event bubbles and crosses shadow roots as the browser's own does.
 */
import { ToolError } from "@toolrunner/runner-sdk";
import { isDisabled, isVisible } from "./element-facts.js";
import { type PageView, wordsFor } from "./element-target.js";
import * as dom from "./native-dom.js";

/** How long an element may take to become usable, as after an animation, ms. */
export const USABLE_WITHIN_MS = 2_000;
const LOOK_AGAIN_MS = 50;

interface Point {
  readonly x: number;
  readonly y: number;
}

/**
 * Waits until a person could use the element, and brings it into view. The answer is where it can be pressed.
 * @throws ToolError `element_stale`, `element_not_visible`, `element_disabled`, `element_covered`; the signal's reason
 */
export async function untilUsable(view: PageView, element: Element, signal: AbortSignal): Promise<Point> {
  const until = performance.now() + USABLE_WITHIN_MS;
  for (;;) {
    signal.throwIfAborted();
    const found = usablePoint(view, element);
    if (!(found instanceof ToolError)) return found;
    if (performance.now() > until || found.code === "element_stale") throw found;
    await new Promise((resolve) => setTimeout(resolve, LOOK_AGAIN_MS));
  }
}

function usablePoint(view: PageView, element: Element): Point | ToolError {
  const words = wordsFor(view, element);
  if (!dom.isConnected(element)) return new ToolError("element_stale", `${words} is no longer on the page. Use find again.`);
  if (!isVisible(element)) return new ToolError("element_not_visible", `${words} cannot be seen: open what holds it first.`);
  if (isDisabled(element)) return new ToolError("element_disabled", `${words} is disabled: something else has to be done first.`);
  dom.scrollToElement(element, { block: "center", inline: "center", behavior: "instant" });
  let cover: Element | null = null;
  for (const point of pointsOf(element)) {
    const hit = elementAt(element, point);
    const above = hit !== null && isSameForHand(element, hit) ? coverOfFrames(element, point) : hit;
    if (above === null && hit !== null) return point;
    cover ??= above;
  }
  return new ToolError(
    "element_covered",
    cover === null
      ? `${words} is outside of what can be scrolled into view.`
      : `${words} is covered by ${wordsFor(view, cover)}: close or move that first.`,
  );
}

function viewOf(element: Element): Window | null {
  const document = dom.ownerDocumentOf(element);
  return document === null ? null : dom.viewOf(document);
}

/** Middle and quarters of what is in view of its boxes. */
function* pointsOf(element: Element): Generator<Point> {
  const view = viewOf(element);
  if (view === null) return;
  let boxes = 0;
  for (const box of dom.rectsOf(element)) {
    const [left, right] = [Math.max(0, box.left), Math.min(view.innerWidth, box.right)];
    const [top, bottom] = [Math.max(0, box.top), Math.min(view.innerHeight, box.bottom)];
    if (right - left <= 0 || bottom - top <= 0) continue;
    for (const part of [0.5, 0.25, 0.75]) yield { x: left + (right - left) * part, y: top + (bottom - top) * part };
    boxes += 1;
    if (boxes === 8) return;
  }
}

/** What lies over the frames that the element is in, at a point of the innermost one; null when nothing does. */
function coverOfFrames(element: Element, { x, y }: Point): Element | null {
  const frame = viewOf(element)?.frameElement ?? null;
  if (frame === null) return null;
  const [box] = dom.rectsOf(frame);
  if (box === undefined) return frame;
  const point = { x: box.left + frame.clientLeft + x, y: box.top + frame.clientTop + y };
  const hit = elementAt(frame, point);
  return hit === frame ? coverOfFrames(frame, point) : hit;
}

/** The innermost element at a point, through open shadow trees. */
function elementAt(near: Element, { x, y }: Point): Element | null {
  const document = dom.ownerDocumentOf(near);
  let found = document === null ? null : dom.elementAtPoint(document, x, y);
  for (let depth = 0; found !== null && depth < 100; depth += 1) {
    const shadow: ShadowRoot | null = dom.shadowRootOf(found);
    const inner: Element | null = shadow === null ? null : dom.elementAtPoint(shadow, x, y);
    if (inner === null || inner === found) return found;
    found = inner;
  }
  return found;
}

/** Whether pressing `hit` is pressing `element`: in it, or in its label. */
function isSameForHand(element: Element, hit: Element): boolean {
  for (let at: Element | null = hit; at !== null; at = dom.shownParentOf(at)) {
    if (at === element) return true;
    if (dom.tagOf(at) === "LABEL" && (at as HTMLLabelElement).control === element) return true;
  }
  return false;
}

/** Presses and releases the main button at a point of the element. True unless the page prevented the click. */
export function press(element: Element, point: Point): boolean {
  const view = viewOf(element);
  const common = { bubbles: true, cancelable: true, composed: true, view, clientX: point.x, clientY: point.y };
  const pointer = (type: string, buttons: number, more: PointerEventInit = {}) =>
    send(element, dom.EVENTS.PointerEvent, type, { ...common, pointerId: 1, pointerType: "mouse", isPrimary: true, buttons, ...more });
  const mouse = (type: string, buttons: number, more: MouseEventInit = {}) =>
    send(element, dom.EVENTS.MouseEvent, type, { ...common, buttons, ...more });
  const silent = { bubbles: false, cancelable: false };
  pointer("pointerover", 0);
  pointer("pointerenter", 0, silent);
  mouse("mouseover", 0);
  mouse("mouseenter", 0, silent);
  pointer("pointermove", 0);
  mouse("mousemove", 0);
  pointer("pointerdown", 1);
  if (mouse("mousedown", 1, { detail: 1 })) focus(element);
  pointer("pointerup", 0);
  mouse("mouseup", 0, { detail: 1 });
  return send(element, dom.EVENTS.PointerEvent ?? dom.EVENTS.MouseEvent, "click", {
    ...common,
    detail: 1,
    pointerId: 1,
    pointerType: "mouse",
  });
}

/** Gives the focus to the element or to the first around it that takes it. */
export function focus(element: Element): void {
  const root = dom.rootOf(element);
  for (let at: Element | null = element; at !== null; at = dom.shownParentOf(at)) {
    try {
      dom.focusHtml(at, { preventScroll: true });
    } catch {
      // Not an HTML element: what is around it may take the focus.
      continue;
    }
    const document = dom.ownerDocumentOf(at);
    if (dom.activeElementOf(root) === at || (document !== null && dom.activeElementOf(document) === at)) return;
  }
}

/** The event before an edit. False when the page took the edit over. */
export function announceInput(element: Element, inputType: string, data: string | null): boolean {
  return send(element, dom.EVENTS.InputEvent, "beforeinput", { bubbles: true, cancelable: true, composed: true, inputType, data });
}

/** The events that follow a change of a field's value. */
export function tellInput(element: Element, data: string | null): void {
  send(element, dom.EVENTS.InputEvent, "input", { bubbles: true, composed: true, inputType: "insertText", data });
}

/** The event that follows when a person is done with a field. */
export function tellChange(element: Element): void {
  send(element, dom.EVENTS.Event, "change", { bubbles: true });
}

function send<Init extends EventInit>(
  element: Element,
  kind: (new (type: string, init: Init) => Event) | undefined,
  type: string,
  init: Init,
): boolean {
  return kind === undefined ? true : dom.dispatch(element, new kind(type, init));
}
