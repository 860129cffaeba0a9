export type { ElementRow } from "./element-target.js";
export type { ActionResult, FindResult } from "./page-actions.js";
export type { PageDocument, PageNode, PageStyle } from "./page-dom.js";
export { type PageToolsOptions, pageTools, RESULT_CONTEXT_BYTES, type ReadPageResult, readPageTool } from "./page-tools.js";
