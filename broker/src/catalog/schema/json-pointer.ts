/** JSON Pointers (RFC 6901): the `path` of every fault. */

/** `parent` with one more token, escaped. */
export function child(parent: string, token: string | number): string {
  return `${parent}/${String(token).replaceAll("~", "~0").replaceAll("/", "~1")}`;
}

/** What `pointer` names in `root`, own properties only; undefined when there is nothing. */
export function resolvePointer(root: unknown, pointer: string): unknown {
  if (pointer === "") return root;
  if (!pointer.startsWith("/")) return undefined;
  let here: unknown = root;
  for (const token of pointer.slice(1).split("/")) {
    if (typeof here !== "object" || here === null) return undefined;
    const key = token.replaceAll("~1", "/").replaceAll("~0", "~");
    if (!Object.hasOwn(here, key)) return undefined;
    here = (here as Record<string, unknown>)[key];
  }
  return here;
}
