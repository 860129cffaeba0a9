/** JSON texts that runners send: whether they are JSON at all, and shallow enough to be shown to agents by whoever writes them again. */
import { RESULT_DEPTH_MAX } from "../domain/limits.js";
import type { Json } from "../domain/ports/catalog.js";

export type RunnerJson = { readonly kind: "json"; readonly json: Json } | { readonly kind: "not_json" } | { readonly kind: "too_deep" };

/** Parses `text`. Writers of JSON recurse: what is nested deeper than {@link RESULT_DEPTH_MAX} would break them. */
export function readRunnerJson(text: string): RunnerJson {
  if (text.length > RESULT_DEPTH_MAX && isDeep(text)) {
    return { kind: "too_deep" };
  }
  try {
    return { kind: "json", json: JSON.parse(text) as Json };
  } catch {
    return { kind: "not_json" };
  }
}

/** Counts brackets outside strings. */
function isDeep(text: string): boolean {
  let depth = 0;
  let quoted = false;
  for (let index = 0; index < text.length; index += 1) {
    const code = text.charCodeAt(index);
    if (quoted) {
      if (code === 0x5c) {
        index += 1;
      } else if (code === 0x22) {
        quoted = false;
      }
    } else if (code === 0x22) {
      quoted = true;
    } else if (code === 0x5b || code === 0x7b) {
      depth += 1;
      if (depth > RESULT_DEPTH_MAX) {
        return true;
      }
    } else if (code === 0x5d || code === 0x7d) {
      depth -= 1;
    }
  }
  return false;
}
