/**
 * `find`, `click` and `fill`: what a person does on the page, for an agent.
 *
 * Invariants: results stay within their byte budget and say what they leave out; each failure has a code and says what to do next.
 */
import { defineTool, type Tool, ToolError } from "@toolrunner/runner-sdk";
import { press, untilUsable } from "./element-actions.js";
import { searchPage } from "./element-search.js";
import { type ElementRow, isNarrowing, type PageView, resolveTarget, rowOf, type Target } from "./element-target.js";
import { type FieldValue, fillField } from "./fill-field.js";
import { baseUriOf, isConnected } from "./native-dom.js";
import { jsonBytes, PAGE_WARNING, shortAddress } from "./page-result.js";

/** Matches that `find` gives at most. */
export const FIND_LIMIT_MAX = 50;
const FIND_LIMIT = 20;
const WORD_CHARACTERS = 500;
const VALUE_CHARACTERS = 100_000;

/** Answer of `find`. */
export interface FindResult {
  readonly matches: readonly ElementRow[];
  /** How many there are; over `matches` when more were found than are given. */
  readonly total: number;
  readonly notes: readonly string[];
}

/** Answer of `click` and `fill`. */
export interface ActionResult {
  /** The element after it; null when the page took it away. */
  readonly element: ElementRow | null;
  /** Address of the page after it, without what follows `?` or `#`. */
  readonly address: string;
  readonly notes: readonly string[];
}

const text = (description: string) => ({ type: "string", maxLength: WORD_CHARACTERS, description }) as const;

const CRITERIA = {
  role: text("ARIA role, such as button, link, textbox, checkbox, combobox, heading."),
  name: text("Part of its accessible name: what a button or link says, how a field is labelled."),
  text: text("Part of its text; of elements within one another the innermost counts."),
  label: text("Part of a field's label or placeholder."),
  selector: text("CSS selector, if nothing else tells it apart. Does not reach into shadow roots or frames."),
  exact: { type: "boolean", description: "Whole texts instead of parts; false by default." },
} as const;

const TARGET = { ref: text("The ref that find gave. Takes the place of all other ways to name it."), ...CRITERIA } as const;

const ROW = {
  type: "object",
  properties: {
    ref: { type: "string" },
    role: { type: "string" },
    name: { type: "string" },
    tag: { type: "string" },
    text: { type: "string" },
    value: { type: "string" },
    checked: { type: "boolean" },
    disabled: { type: "boolean" },
    hidden: { type: "boolean" },
  },
  required: ["ref", "role", "name", "tag"],
} as const;

const ACTION_OUTPUT = {
  type: "object",
  properties: {
    element: { anyOf: [ROW, { type: "null" }] },
    address: { type: "string" },
    notes: { type: "array", items: { type: "string" } },
  },
  required: ["element", "address", "notes"],
} as const;

/** The tool `find`. */
export function findTool(view: PageView, budgetBytes: number): Tool {
  return defineTool({
    name: "find",
    description: [
      "Find elements on the page that the user has open: buttons, links, form fields, text. Give some of role, name, text, label and selector; all must hold.",
      "Each match has a ref for click and fill, its role and name, what a field holds (never passwords, codes and cards), checked, disabled.",
      `At most ${FIND_LIMIT_MAX}; total says how many there are. ${PAGE_WARNING}`,
    ].join(" "),
    behaviour: "read_only",
    idempotent: true,
    cancellable: true,
    timeoutSeconds: 30,
    maxResultContextBytes: budgetBytes,
    input: {
      type: "object",
      properties: {
        ...CRITERIA,
        hidden: { type: "boolean", description: "Also elements that nobody sees; false by default." },
        limit: { type: "integer", minimum: 1, maximum: FIND_LIMIT_MAX, description: `${FIND_LIMIT} by default.` },
      },
      additionalProperties: false,
    },
    output: {
      type: "object",
      properties: {
        matches: { type: "array", items: ROW },
        total: { type: "integer" },
        notes: { type: "array", items: { type: "string" } },
      },
      required: ["matches", "total", "notes"],
      additionalProperties: false,
    },
    run: ({ limit, ...criteria }) => find(view, criteria as Target, limit ?? FIND_LIMIT, budgetBytes),
  });
}

function find(view: PageView, criteria: Target, limit: number, budgetBytes: number): FindResult {
  if (!isNarrowing(criteria)) throw new ToolError("arguments_invalid", "Say what to find: some of role, name, text, label and selector.");
  const search = searchPage(view.document, criteria);
  const rows = search.elements.slice(0, limit).map((element) => rowOf(view, element));
  const build = (): FindResult => ({
    matches: rows,
    total: search.total,
    notes: [
      ...(search.total > rows.length ? [`${search.total - rows.length} more match: say more to narrow it down.`] : []),
      ...(search.isCut ? ["The page is too large: its end was not looked at."] : []),
    ],
  });
  while (rows.length > 1 && jsonBytes(build()) > budgetBytes) rows.pop();
  return build();
}

/** The tool `click`. */
export function clickTool(view: PageView): Tool {
  return defineTool({
    name: "click",
    description: [
      "Click an element of the page that the user has open, as with the mouse. Name it by the ref that find gave, or by what holds of it alone.",
      "Waits shortly until it can be clicked. Fails when it is hidden, disabled or covered, or when more than one matches, and then says which.",
      "Whatever the click leads to happens after the answer: read the page to see it.",
    ].join(" "),
    cancellable: true,
    timeoutSeconds: 30,
    input: { type: "object", properties: TARGET, additionalProperties: false },
    output: ACTION_OUTPUT,
    async run(args, ctx) {
      const element = resolveTarget(view, args as Target);
      const point = await untilUsable(view, element, ctx.signal);
      const happened = press(element, point);
      return answer(view, element, happened ? [] : ["The page itself took the click: what the browser would do by itself was prevented."]);
    },
  });
}

/** The tool `fill`. */
export function fillTool(view: PageView): Tool {
  return defineTool({
    name: "fill",
    description: [
      "Put a value into a form field of the page that the user has open, in place of what it holds.",
      "Text for fields and editors; true or false for checkboxes, switches and radio buttons; for lists the option's text or value (an array of them where several can be chosen).",
      "Name the field by the ref that find gave, or by what holds of it alone, such as its label. Sends nothing: click the button for that.",
    ].join(" "),
    cancellable: true,
    timeoutSeconds: 30,
    input: {
      type: "object",
      properties: {
        ...TARGET,
        value: {
          type: ["string", "boolean", "array"],
          items: { type: "string", maxLength: WORD_CHARACTERS },
          maxItems: 100,
          maxLength: VALUE_CHARACTERS,
          description: "Text, true or false, or a list of options.",
        },
      },
      required: ["value"],
      additionalProperties: false,
    },
    output: ACTION_OUTPUT,
    async run({ value, ...target }, ctx) {
      const element = resolveTarget(view, target as Target);
      await fillField(view, element, value as FieldValue, ctx.signal);
      return answer(view, element, []);
    },
  });
}

function answer(view: PageView, element: Element, notes: readonly string[]): ActionResult {
  const isThere = isConnected(element);
  return {
    element: isThere ? rowOf(view, element) : null,
    address: shortAddress(baseUriOf(view.document)),
    notes: isThere ? notes : [...notes, "The page has taken the element away."],
  };
}
