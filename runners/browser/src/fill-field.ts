/**
 * Puts a value into a form field so that the page takes it for a person's input.
 *
 * Values are set by the platform's own setters: frameworks put theirs before them to tell a program's change from a person's.
 * Invariant: a field ends with the value asked for, or as it was, with an error that says why.
 */
import { ToolError } from "@toolrunner/runner-sdk";
import { announceInput, focus, press, tellChange, tellInput, untilUsable } from "./element-actions.js";
import { cut, isChecked, isEditingHost, oneLine, roleOf } from "./element-facts.js";
import { type PageView, wordsFor } from "./element-target.js";
import * as dom from "./native-dom.js";

/** What a field can be given: text, whether it is switched on, or the options of a list. */
export type FieldValue = string | boolean | readonly string[];

/** Options that an error names. */
const OPTIONS_TOLD = 20;
const NOT_TYPED_INTO = new Set(["button", "submit", "reset", "image", "file", "hidden"]);

/** @throws ToolError `field_not_fillable`, `value_invalid`, `option_not_found`, `element_read_only`, and those of {@link untilUsable} */
export async function fillField(view: PageView, element: Element, value: FieldValue, signal: AbortSignal): Promise<void> {
  const tag = dom.tagOf(element);
  const type = tag === "INPUT" ? dom.inputTypeOf(element) : "";
  const words = wordsFor(view, element);
  const isSwitch = type === "checkbox" || type === "radio" || (tag !== "INPUT" && isChecked(element) !== undefined);
  const isText = tag === "TEXTAREA" || (tag === "INPUT" && !isSwitch && !NOT_TYPED_INTO.has(type)) || isEditingHost(element);
  if (!isSwitch && !isText && tag !== "SELECT") {
    const hint =
      type === "file"
        ? "a page cannot choose a file: ask the user to"
        : `a ${roleOf(element) || tag.toLowerCase()} takes no value: click it, or fill the field in it`;
    throw new ToolError("field_not_fillable", `${words}: ${hint}.`);
  }
  const point = await untilUsable(view, element, signal);
  if (isSwitch) {
    const wanted = asSwitch(value, words);
    if (isChecked(element) === wanted) return;
    if (type === "radio" && !wanted)
      throw new ToolError("value_invalid", `${words}: a radio button is switched off by switching on another.`);
    press(element, point);
    await nextTurn();
    if (isChecked(element) !== wanted) throw new ToolError("value_invalid", `${words} did not switch: the page prevents it.`);
    return;
  }
  if (tag === "SELECT") return chooseOptions(element, value, words);
  if (typeof value !== "string") throw new ToolError("value_invalid", `${words} takes a text.`);
  if (tag === "INPUT" || tag === "TEXTAREA") typeText(element, tag, type, value, words);
  else editText(element, value);
}

function asSwitch(value: FieldValue, words: string): boolean {
  if (typeof value === "boolean") return value;
  if (value === "true" || value === "false") return value === "true";
  throw new ToolError("value_invalid", `${words} is on or off: give true or false.`);
}

function typeText(element: Element, tag: string, type: string, value: string, words: string): void {
  const isInput = tag === "INPUT";
  if (isInput ? dom.isInputReadOnly(element) : dom.isTextareaReadOnly(element)) {
    throw new ToolError("element_read_only", `${words} can only be read.`);
  }
  const longest = isInput ? dom.inputMaxLengthOf(element) : dom.textareaMaxLengthOf(element);
  if (longest >= 0 && value.length > longest) {
    throw new ToolError("value_invalid", `${words} takes at most ${longest} characters, and this has ${value.length}.`);
  }
  const [read, write] = isInput ? [dom.inputValueOf, dom.setInputValue] : [dom.textareaValueOf, dom.setTextareaValue];
  const before = read(element);
  focus(element);
  write(element, value);
  const kept = read(element);
  const isSnapped = (type === "range" || type === "color") && kept.toLowerCase() !== value.trim().toLowerCase();
  if (isSnapped || (kept === "" && value.trim() !== "")) {
    write(element, before);
    throw new ToolError("value_invalid", `${words} takes no such text: ${FORMS[type] ?? `it is of type ${type}`}.`);
  }
  tellInput(element, value);
  tellChange(element);
}

const FORMS: Readonly<Record<string, string>> = {
  number: "give a number such as 12.5",
  date: "give a date such as 2030-01-31",
  time: "give a time such as 13:45",
  "datetime-local": "give date and time such as 2030-01-31T13:45",
  month: "give a month such as 2030-01",
  week: "give a week such as 2030-W05",
  range: "give a number that its slider can stand at",
  color: "give a colour such as #ff8800",
};

/** The browser's own editing command, announced as a key press would be: editors live on these events, and some edit by themselves. */
function editText(element: Element, value: string): void {
  focus(element);
  const document = dom.ownerDocumentOf(element);
  if (document !== null) dom.selectionOf(document)?.selectAllChildren(element);
  const command = value === "" ? "delete" : "insertText";
  if (!announceInput(element, value === "" ? "deleteContentBackward" : command, value === "" ? null : value)) return;
  if (document !== null && dom.execCommand(document, command, false, value)) return;
  (element as HTMLElement).textContent = value;
  tellInput(element, value);
}

function chooseOptions(element: Element, value: FieldValue, words: string): void {
  const isMultiple = dom.isSelectMultiple(element);
  const wanted = typeof value === "string" ? [value] : value;
  if (typeof wanted === "boolean" || (!isMultiple && wanted.length !== 1)) {
    throw new ToolError("value_invalid", `${words} takes ${isMultiple ? "a list of options" : "one option"}, by text or value.`);
  }
  const options = [...dom.selectOptionsOf(element)];
  const chosen = new Set(wanted.map((each) => optionFor(options, each, words)));
  focus(element);
  let changed = false;
  for (const option of options) {
    const isWanted = chosen.has(option);
    if (option.selected === isWanted || (!isMultiple && !isWanted)) continue;
    option.selected = isWanted;
    changed = true;
  }
  if (!changed) return;
  tellInput(element, null);
  tellChange(element);
}

function optionFor(options: readonly HTMLOptionElement[], wanted: string, words: string): HTMLOptionElement {
  const folded = oneLine(wanted).toLowerCase();
  const option =
    options.find(({ value }) => value === wanted) ??
    options.find(({ text }) => oneLine(text) === oneLine(wanted)) ??
    options.find(({ text }) => oneLine(text).toLowerCase() === folded);
  if (option === undefined) {
    const told = options.slice(0, OPTIONS_TOLD).map(({ text }) => ({ path: "/value", expected: cut(oneLine(text)), actual: cut(wanted) }));
    const more = options.length > OPTIONS_TOLD ? ` The first ${OPTIONS_TOLD} of ${options.length} are listed.` : "";
    throw new ToolError("option_not_found", `${words} has no option ${JSON.stringify(cut(wanted))}.${more}`, { details: told });
  }
  if (dom.matchesSelector(option, ":disabled")) {
    throw new ToolError("element_disabled", `The option ${JSON.stringify(cut(oneLine(option.text)))} of ${words} is disabled.`);
  }
  return option;
}

/** Frameworks that hold a switch take it back within the same turn. */
const nextTurn = () => new Promise((resolve) => setTimeout(resolve, 0));
