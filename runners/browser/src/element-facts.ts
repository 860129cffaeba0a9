/**
 * What an element is to a person: its role, its name, whether it can be seen and used.
 *
 * Roles and names follow ARIA as far as pages use it in practice. Invariant: no value of a field that holds a secret is ever read.
 */
import * as dom from "./native-dom.js";

/** Characters of a name or value that are told. */
export const TOLD_CHARACTERS = 120;
/** Characters of an element's text that are compared. */
export const TEXT_CHARACTERS = 2_000;

const INPUT_ROLES: Readonly<Record<string, string>> = {
  button: "button",
  submit: "button",
  reset: "button",
  image: "button",
  checkbox: "checkbox",
  radio: "radio",
  range: "slider",
  number: "spinbutton",
  search: "searchbox",
  hidden: "",
  password: "textbox",
};

const TAG_ROLES: Readonly<Record<string, string>> = {
  ARTICLE: "article",
  ASIDE: "complementary",
  BUTTON: "button",
  DETAILS: "group",
  DIALOG: "dialog",
  FIELDSET: "group",
  FOOTER: "contentinfo",
  FORM: "form",
  H1: "heading",
  H2: "heading",
  H3: "heading",
  H4: "heading",
  H5: "heading",
  H6: "heading",
  HEADER: "banner",
  HR: "separator",
  IFRAME: "iframe",
  IMG: "img",
  LI: "listitem",
  MAIN: "main",
  METER: "meter",
  NAV: "navigation",
  OL: "list",
  OPTION: "option",
  OUTPUT: "status",
  P: "paragraph",
  PROGRESS: "progressbar",
  SUMMARY: "button",
  TABLE: "table",
  TD: "cell",
  TEXTAREA: "textbox",
  TH: "columnheader",
  TR: "row",
  UL: "list",
};

/** Roles whose name is their text. */
const NAMED_BY_TEXT = new Set(
  "button cell checkbox columnheader gridcell heading link listitem menuitem menuitemcheckbox menuitemradio option paragraph radio row rowheader switch tab tooltip treeitem".split(
    " ",
  ),
);

const SECRET_COMPLETIONS = /(?:^|\s)(?:current-password|new-password|one-time-code|cc-[a-z-]+)(?:$|\s)/i;

/** The role of an element, "" when it has none. */
export function roleOf(element: Element): string {
  const [given] = (dom.attributeOf(element, "role") ?? "").trim().toLowerCase().split(/\s+/, 1);
  if (given !== undefined && given !== "" && given !== "presentation" && given !== "none") return given;
  const tag = dom.tagOf(element);
  if (tag === "A" || tag === "AREA") return dom.attributeOf(element, "href") === null ? "" : "link";
  if (tag === "INPUT") return INPUT_ROLES[dom.inputTypeOf(element)] ?? (dom.attributeOf(element, "list") === null ? "textbox" : "combobox");
  if (tag === "SELECT") return dom.isSelectMultiple(element) ? "listbox" : "combobox";
  const role = TAG_ROLES[tag];
  if (role !== undefined) return role;
  return isEditingHost(element) ? "textbox" : "";
}

/** Whether editing begins at this element, as at one with `contenteditable`. */
export function isEditingHost(element: Element): boolean {
  const given = dom.attributeOf(element, "contenteditable");
  return given !== null && given.toLowerCase() !== "false" && isEditable(element);
}

function isEditable(element: Element): boolean {
  try {
    return dom.isContentEditable(element);
  } catch {
    // Not an HTML element.
    return false;
  }
}

/** Texts that label a form field: what is shown beside it, then what stands in it while it is empty. */
export function labelsOf(element: Element): readonly string[] {
  const labels = [referencedText(element, "aria-labelledby"), dom.attributeOf(element, "aria-label") ?? ""];
  for (const label of nativeLabels(element)) labels.push(textOf(label));
  for (const name of ["placeholder", "title"]) labels.push(dom.attributeOf(element, name) ?? "");
  return labels.map(oneLine).filter((label) => label !== "");
}

function nativeLabels(element: Element): readonly Element[] {
  const tag = dom.tagOf(element);
  const labels =
    tag === "INPUT"
      ? dom.inputLabelsOf(element)
      : tag === "TEXTAREA"
        ? dom.textareaLabelsOf(element)
        : tag === "SELECT"
          ? dom.selectLabelsOf(element)
          : null;
  return labels === null ? [] : [...labels];
}

/** Whether it is a native form field. */
export function isField(element: Element): boolean {
  const tag = dom.tagOf(element);
  return tag === "TEXTAREA" || tag === "SELECT" || (tag === "INPUT" && dom.inputTypeOf(element) !== "hidden");
}

/**
 * The name by which a person would call it, "" when it has none.
 * @param text its text, where the caller has it already
 */
export function nameOf(element: Element, role = roleOf(element), text?: string): string {
  const referenced = oneLine(referencedText(element, "aria-labelledby"));
  if (referenced !== "") return referenced;
  const given = oneLine(dom.attributeOf(element, "aria-label") ?? "");
  if (given !== "") return given;
  const tag = dom.tagOf(element);
  if (tag === "INPUT" && ["button", "submit", "reset"].includes(dom.inputTypeOf(element))) {
    return oneLine(dom.inputValueOf(element)) || dom.inputTypeOf(element);
  }
  if (tag === "IMG" || tag === "AREA" || (tag === "INPUT" && dom.inputTypeOf(element) === "image")) {
    return oneLine(dom.attributeOf(element, "alt") ?? dom.attributeOf(element, "title") ?? "");
  }
  if (isField(element)) return labelsOf(element)[0] ?? "";
  const shown = NAMED_BY_TEXT.has(role) ? oneLine(text ?? textOf(element)) : "";
  return shown === "" ? oneLine(dom.attributeOf(element, "title") ?? "") : shown;
}

function referencedText(element: Element, attribute: string): string {
  const ids = (dom.attributeOf(element, attribute) ?? "").trim();
  if (ids === "") return "";
  return ids
    .split(/\s+/)
    .slice(0, 10)
    .map((id) => {
      const found = dom.elementById(element, id);
      return found === null ? "" : textOf(found);
    })
    .join(" ");
}

/** Text of what the element shows, images by their description; cut at {@link TEXT_CHARACTERS}. */
export function textOf(element: Element): string {
  let text = "";
  const read = (node: Node, depth: number): void => {
    if (text.length >= TEXT_CHARACTERS || depth > 200) return;
    if (dom.nodeTypeOf(node) === 3) text += dom.nodeValueOf(node) ?? "";
    else if (dom.isElement(node)) {
      const tag = dom.tagOf(node);
      if (isSilent(tag)) return;
      if (tag === "IMG") text += ` ${dom.attributeOf(node, "alt") ?? ""} `;
      for (const child of dom.shownChildrenOf(node)) read(child, depth + 1);
    }
  };
  read(element, 0);
  return text.slice(0, TEXT_CHARACTERS);
}

/** Whether what is in an element of this name is no text of the page. */
export function isSilent(tag: string): boolean {
  return tag === "SCRIPT" || tag === "STYLE" || tag === "NOSCRIPT" || tag === "TEMPLATE" || tag === "HEAD" || tag === "TEXTAREA";
}

/** White space as a person sees it. */
export function oneLine(text: string): string {
  return text.replace(/\s+/g, " ").trim();
}

/** At most `characters` of the text, with a mark where it was cut. */
export function cut(text: string, characters = TOLD_CHARACTERS): string {
  if (text.length <= characters) return text;
  const last = text.charCodeAt(characters - 2);
  return `${text.slice(0, last >= 0xd800 && last <= 0xdbff ? characters - 2 : characters - 1)}…`;
}

/** Whether it takes up room and nothing hides it. Being scrolled away or covered does not count. */
export function isVisible(element: Element): boolean {
  if (!dom.isConnected(element)) return false;
  if (dom.checkVisibility !== undefined) {
    if (!dom.checkVisibility(element, { opacityProperty: true, visibilityProperty: true, contentVisibilityAuto: true })) return false;
  } else {
    const style = dom.computedStyleOf(element);
    if (style === undefined || style.visibility !== "visible" || style.display === "none") return false;
  }
  for (const { width, height } of dom.rectsOf(element)) if (width > 0 && height > 0) return true;
  // Boxes of their own have only their children.
  const tag = dom.tagOf(element);
  return tag === "OPTION" || tag === "OPTGROUP" ? parentIsVisible(element) : false;
}

function parentIsVisible(element: Element): boolean {
  const parent = dom.shownParentOf(element);
  return parent !== null && isVisible(parent);
}

/** Whether a person could not use it: disabled by itself, by its fieldset, or by what ARIA says of it or around it. */
export function isDisabled(element: Element): boolean {
  if (dom.matchesSelector(element, ":disabled")) return true;
  for (let at: Element | null = element; at !== null; at = dom.shownParentOf(at)) {
    if (dom.attributeOf(at, "aria-disabled")?.toLowerCase() === "true") return true;
  }
  return false;
}

/** Whether a field holds what is not to be read: a password, a code sent to the user, a card. */
export function isSecret(element: Element): boolean {
  if (dom.tagOf(element) === "INPUT" && dom.inputTypeOf(element) === "password") return true;
  return SECRET_COMPLETIONS.test(dom.attributeOf(element, "autocomplete") ?? "");
}

/** What a field holds; undefined for what is no field, and for a secret. */
export function fieldValueOf(element: Element): string | undefined {
  if (isSecret(element)) return undefined;
  const tag = dom.tagOf(element);
  if (tag === "TEXTAREA") return dom.textareaValueOf(element);
  if (tag === "SELECT") {
    return [...dom.selectOptionsOf(element)]
      .filter((option) => option.selected)
      .map((option) => oneLine(option.text))
      .join(", ");
  }
  if (tag === "INPUT") {
    const type = dom.inputTypeOf(element);
    return ["checkbox", "radio", "button", "submit", "reset", "image", "file", "hidden"].includes(type)
      ? undefined
      : dom.inputValueOf(element);
  }
  return isEditingHost(element) ? oneLine(textOf(element)) : undefined;
}

/** Whether it is switched on; undefined for what cannot be. */
export function isChecked(element: Element): boolean | undefined {
  if (dom.tagOf(element) === "INPUT" && ["checkbox", "radio"].includes(dom.inputTypeOf(element))) return dom.isInputChecked(element);
  const told = dom.attributeOf(element, "aria-checked") ?? dom.attributeOf(element, "aria-pressed");
  return told === "true" ? true : told === "false" ? false : undefined;
}
