/**
 * Tools on the page that the runner lives in.
 *
 * Invariant: no Node import; runs in a page with a strict content security policy.
 */
import { defineTool, type Tool, ToolError } from "@toolrunner/runner-sdk";
import { ElementRefs } from "./element-refs.js";
import { clickTool, fillTool, findTool } from "./page-actions.js";
import { type PageDocument, pageOf } from "./page-dom.js";
import { cutAt, jsonBytes, PAGE_WARNING, shortAddress } from "./page-result.js";
import { PAGE_CHARACTERS, pageText } from "./page-text.js";

/** Largest and default `maxResultContextBytes`. */
export const RESULT_CONTEXT_BYTES = 32_768;
/** Smallest `maxResultContextBytes`. */
export const MIN_RESULT_CONTEXT_BYTES = 1_024;

const TITLE_CHARACTERS = 100;

/** Options of `pageTools`. */
export interface PageToolsOptions {
  /** Bytes of a result, as compact JSON, that a tool pages to: 1,024–32,768; 32,768 by default. */
  readonly maxResultContextBytes?: number;
}

/** Answer of `read_page`. */
export interface ReadPageResult {
  /** The first 100 characters of the title. */
  readonly title: string;
  /** The first 200 characters of the address, without what follows `?` or `#`. */
  readonly address: string;
  /** Text from `offset` on, with headings as `#`, links as `[text](address)`, list items as `-`. */
  readonly text: string;
  /** `offset` to go on with; null at the end. */
  readonly next_offset: number | null;
  /** Characters of the page's text in all. */
  readonly total_characters: number;
  readonly notes: readonly string[];
}

/**
 * The page tools: `read_page`, `find`, `click`, `fill`.
 * @param document the page; `window.document`
 * @throws {RangeError} for a `maxResultContextBytes` out of bounds
 */
export function pageTools(document: Document, options: PageToolsOptions = {}): Tool[] {
  const view = { document, refs: new ElementRefs() };
  const budgetBytes = budgetOf(options);
  return [readPageTool(document, options), findTool(view, budgetBytes), clickTool(view), fillTool(view)];
}

function budgetOf({ maxResultContextBytes: budgetBytes = RESULT_CONTEXT_BYTES }: PageToolsOptions): number {
  if (!Number.isInteger(budgetBytes) || budgetBytes < MIN_RESULT_CONTEXT_BYTES || budgetBytes > RESULT_CONTEXT_BYTES) {
    throw new RangeError(
      `maxResultContextBytes is ${budgetBytes}; it must be an integer from ${MIN_RESULT_CONTEXT_BYTES} to ${RESULT_CONTEXT_BYTES}.`,
    );
  }
  return budgetBytes;
}

/** The tool `read_page` alone. @throws {RangeError} for a `maxResultContextBytes` out of bounds */
export function readPageTool(document: PageDocument, options: PageToolsOptions = {}): Tool {
  const budgetBytes = budgetOf(options);
  return defineTool({
    name: "read_page",
    description: [
      "Read the page that the user has open, as text: what is visible, with headings as #, links as [text](address) and list items as -.",
      `Values of form fields, scripts, frames of other sites and hidden parts are left out. ${PAGE_WARNING}`,
      `Gives what fits into the result's byte budget; next_offset says where to go on. At most ${PAGE_CHARACTERS} characters of a page are read.`,
    ].join(" "),
    behaviour: "read_only",
    idempotent: true,
    cancellable: true,
    timeoutSeconds: 30,
    maxResultContextBytes: budgetBytes,
    input: {
      type: "object",
      properties: {
        offset: {
          type: "integer",
          minimum: 0,
          maximum: PAGE_CHARACTERS * 4,
          description: "Characters to skip; next_offset of the page before. 0 by default.",
        },
      },
      additionalProperties: false,
    },
    output: {
      type: "object",
      properties: {
        title: { type: "string" },
        address: { type: "string" },
        text: { type: "string" },
        next_offset: { type: ["integer", "null"] },
        total_characters: { type: "integer" },
        notes: { type: "array", items: { type: "string" } },
      },
      required: ["title", "address", "text", "next_offset", "total_characters", "notes"],
      additionalProperties: false,
    },
    run: (args) => readPage(document, offsetOf(args), budgetBytes),
  });
}

/**
 * Reads the page from a place in its text.
 * @param budgetBytes most bytes of the compact JSON of the result
 */
export function readPage(given: PageDocument, offset: number, budgetBytes: number): ReadPageResult {
  const document = pageOf(given);
  const page = pageText(document);
  const start = Math.min(offset, page.text.length);
  const build = (end: number): ReadPageResult => ({
    title: cutAt(document.title, 0, TITLE_CHARACTERS),
    address: shortAddress(document.baseURI),
    text: cutAt(page.text, start, end),
    next_offset: end < page.text.length ? start + cutAt(page.text, start, end).length : null,
    total_characters: page.text.length,
    notes: [
      ...(page.text === "" ? ["The page shows no text."] : []),
      ...(offset > 0 && offset >= page.text.length ? ["There is no text from this offset on."] : []),
      ...(page.isCut ? ["The page is too large; its rest was not read."] : []),
    ],
  });
  if (jsonBytes(build(page.text.length)) <= budgetBytes) return build(page.text.length);
  let fits = start;
  for (let tooFar = page.text.length; tooFar - fits > 1; ) {
    const middle = Math.floor((fits + tooFar) / 2);
    if (jsonBytes(build(middle)) <= budgetBytes) fits = middle;
    else tooFar = middle;
  }
  return build(fits);
}

function offsetOf(args: unknown): number {
  const offset: unknown = typeof args === "object" && args !== null && "offset" in args ? args.offset : undefined;
  if (offset === undefined || offset === null) return 0;
  if (typeof offset !== "number" || !Number.isSafeInteger(offset) || offset < 0) {
    throw new ToolError("arguments_invalid", "offset must be an integer, 0 or more.");
  }
  return offset;
}
