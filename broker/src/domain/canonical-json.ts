/**
 * JSON text with object keys sorted at every depth: two equal values have one text, whatever order they were written in.
 * `value` is what JSON can hold; members that are undefined are left out.
 */
export function canonicalJson(value: unknown): string {
  return textOf(value) ?? "null";
}

/** Undefined for what has no JSON text. */
function textOf(value: unknown): string | undefined {
  if (typeof value !== "object" || value === null) {
    return JSON.stringify(value);
  }
  if (Array.isArray(value)) {
    return `[${value.map((item) => textOf(item) ?? "null").join(",")}]`;
  }
  const members = value as { readonly [key: string]: unknown };
  let text = "";
  for (const key of sortedKeys(members)) {
    const member = textOf(members[key]);
    if (member !== undefined) {
      text += `${text === "" ? "" : ","}${JSON.stringify(key)}:${member}`;
    }
  }
  return `{${text}}`;
}

/** Most objects come from programs that write their keys in the same order each time, and often that is this one. */
function sortedKeys(object: object): readonly string[] {
  const keys = Object.keys(object);
  return keys.every((key, index) => index === 0 || (keys[index - 1] ?? "") < key) ? keys : keys.sort();
}
