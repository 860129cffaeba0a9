/** All architecture rules in one call. */
import { checkCycles, checkLayers, checkResolved, type Violation } from "./check-layers.js";
import { checkBrowserEntries, checkGenerated } from "./check-surface.js";
import { checkEscapes, checkNames, checkSize, checkSuppressions, checkTickets, leftoversIn } from "./check-text.js";
import type { SourceTree } from "./source-tree.js";

/** Everything in the tree that a rule forbids. */
export function checkArchitecture(tree: SourceTree): readonly Violation[] {
  return [
    checkLayers,
    checkResolved,
    checkCycles,
    checkGenerated,
    checkBrowserEntries,
    checkSize,
    checkSuppressions,
    checkNames,
    checkTickets,
    checkEscapes,
    ({ files }: SourceTree) => files.flatMap(({ path, text }) => leftoversIn(path, text)),
  ].flatMap((check) => check(tree));
}
