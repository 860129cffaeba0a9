/** Places in compiled files as places in their TypeScript. */
import { existsSync, readFileSync } from "node:fs";
import { SourceMap } from "node:module";
import { fileURLToPath } from "node:url";
import { type Locate, shortened } from "./read-profile.js";

/** A {@link Locate} that reads the source map beside a file, when it has one. */
export function sourcePlaces(): Locate {
  const maps = new Map<string, SourceMap | undefined>();
  return (url, line, column) => {
    if (!url.startsWith("file:")) return undefined;
    if (!maps.has(url)) maps.set(url, mapOf(url));
    const entry = maps.get(url)?.findEntry(line, column);
    if (entry === undefined || !("originalSource" in entry)) return undefined;
    return { file: shortened(new URL(entry.originalSource, url).href), line: entry.originalLine + 1 };
  };
}

function mapOf(url: string): SourceMap | undefined {
  const path = `${fileURLToPath(url)}.map`;
  return existsSync(path) && !path.includes("/node_modules/") ? new SourceMap(JSON.parse(readFileSync(path, "utf8"))) : undefined;
}
