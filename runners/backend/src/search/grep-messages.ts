/** What the built-in search and its thread tell each other. */
import type { FileMatches, GrepQuery } from "./grep-engine.js";

/** What the thread is asked. */
export interface GrepJob {
  readonly files: readonly string[];
  readonly query: GrepQuery;
  readonly lineLimit: number;
}

/** What the thread answers: matches file by file, then one `done` or `invalid`. */
export type GrepNews =
  | { readonly kind: "matches"; readonly matches: FileMatches }
  | { readonly kind: "done" }
  | { readonly kind: "invalid"; readonly message: string };
