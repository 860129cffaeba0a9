/**
 * From what an agent says to the one element that is meant.
 *
 * Invariant: nothing is guessed. None, or more than one, is an error that says what there is instead.
 */
import { ToolError, type ToolErrorDetail } from "@toolrunner/runner-sdk";
import { cut, fieldValueOf, isChecked, isDisabled, isVisible, nameOf, oneLine, roleOf, textOf } from "./element-facts.js";
import type { ElementRefs } from "./element-refs.js";
import { type Criteria, searchPage } from "./element-search.js";
import * as dom from "./native-dom.js";

/** Candidates that an error names. */
const CANDIDATES_TOLD = 8;

/** What names an element: a reference, or what must hold of it and of no other. */
export interface Target extends Criteria {
  readonly ref?: string;
}

/** An element as an agent sees it. Fields that do not apply are left out. */
export interface ElementRow {
  /** Names it in later calls, as long as the page is not loaded again. */
  readonly ref: string;
  readonly role: string;
  readonly name: string;
  readonly tag: string;
  /** Beside the name, where that is not the text. */
  readonly text?: string;
  /** What a field holds; never of a password, code or card field. */
  readonly value?: string;
  readonly checked?: boolean;
  readonly disabled?: true;
  readonly hidden?: true;
}

/** The page and the references to its elements. */
export interface PageView {
  readonly document: Document;
  readonly refs: ElementRefs;
}

/** Describes an element. */
export function rowOf({ refs }: PageView, element: Element): ElementRow {
  const role = roleOf(element);
  const text = textOf(element);
  const name = cut(nameOf(element, role, text));
  const shown = cut(oneLine(text));
  const value = fieldValueOf(element);
  const checked = isChecked(element);
  return {
    ref: refs.of(element),
    role,
    name,
    tag: dom.tagOf(element).toLowerCase().slice(0, 40),
    ...(shown === "" || shown === name ? {} : { text: shown }),
    ...(value === undefined ? {} : { value: cut(value) }),
    ...(checked === undefined ? {} : { checked }),
    ...(isDisabled(element) ? { disabled: true } : {}),
    ...(isVisible(element) ? {} : { hidden: true }),
  };
}

/**
 * The element that is meant.
 * @throws ToolError `arguments_invalid`, `selector_invalid`, `element_stale`, `element_not_found`, `element_not_visible`,
 *   `element_ambiguous`
 */
export function resolveTarget(view: PageView, target: Target): Element {
  if (target.ref !== undefined) return view.refs.resolve(target.ref);
  if (!isNarrowing(target)) {
    throw new ToolError("arguments_invalid", "Say which element: ref, or some of role, name, text, label and selector.");
  }
  const search = searchPage(view.document, target);
  const [only] = search.elements;
  if (only !== undefined && search.total === 1) return only;
  const wanted = wordsOf(target);
  if (only === undefined) {
    const unseen = searchPage(view.document, { ...target, hidden: true });
    if (unseen.total > 0) {
      throw new ToolError(
        "element_not_visible",
        `What matches ${wanted} is there, but hidden: open what holds it (a menu, a tab, a dialog) first.`,
        {
          details: candidates(view, unseen.elements, "a visible element"),
        },
      );
    }
    const rest = search.isCut ? " The page is too large to be looked at as a whole." : "";
    throw new ToolError("element_not_found", `Nothing on the page matches ${wanted}. Read the page, or use find with less.${rest}`);
  }
  throw new ToolError("element_ambiguous", `${search.total} elements match ${wanted}. Say more, or give the ref of one.`, {
    details: candidates(view, search.elements, "one element"),
  });
}

/** Whether anything is said of the element. */
export function isNarrowing({ role, name, text, label, selector }: Criteria): boolean {
  return [role, name, text, label, selector].some((word) => word !== undefined && word.trim() !== "");
}

/** The element in a few words, for messages. */
export function wordsFor(view: PageView, element: Element): string {
  const { ref, role, tag, name } = rowOf(view, element);
  return `${role === "" ? `<${tag}>` : role}${name === "" ? "" : ` ${JSON.stringify(name)}`} (${ref})`;
}

function candidates(view: PageView, elements: readonly Element[], expected: string): readonly ToolErrorDetail[] {
  return elements.slice(0, CANDIDATES_TOLD).map((element) => ({ path: "", expected, actual: wordsFor(view, element) }));
}

function wordsOf({ role, name, text, label, selector }: Criteria): string {
  return Object.entries({ role, name, text, label, selector })
    .filter(([, word]) => word !== undefined)
    .map(([key, word]) => `${key} ${JSON.stringify(cut(word ?? ""))}`)
    .join(", ");
}
