export type { PageDocument, PageNode, PageStyle } from "./page-dom.js";
export { type PageToolsOptions, pageTools, RESULT_CONTEXT_BYTES, type ReadPageResult } from "./page-tools.js";
