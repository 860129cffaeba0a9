/** A hook of Node's module loader that changes single places of compiled files as they are loaded. Runs in the loader's own thread. */
import type { InitializeHook, LoadHook } from "node:module";
import { type Replacement, replaced } from "./replacement.js";

let replacements: readonly Replacement[] = [];

export const initialize: InitializeHook<readonly Replacement[]> = (data) => {
  replacements = data;
};

export const load: LoadHook = async (url, context, nextLoad) => {
  const loaded = await nextLoad(url, context);
  const here = replacements.filter(({ file }) => url.endsWith(`/${file}`));
  if (here.length === 0) return loaded;
  const source = here.reduce((text, each) => replaced(text, each), String(loaded.source));
  return { ...loaded, source };
};
