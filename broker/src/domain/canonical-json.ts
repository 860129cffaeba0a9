/** JSON text with object keys sorted at every depth: two equal values have one text, whatever order they were written in. */
export function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_key, part: unknown) => (isPlainObject(part) ? sorted(part) : part)) ?? "null";
}

function isPlainObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function sorted(object: Record<string, unknown>): Record<string, unknown> {
  // A Map-free way that keeps keys such as __proto__ as plain keys.
  const result: Record<string, unknown> = Object.create(null) as Record<string, unknown>;
  for (const key of Object.keys(object).sort()) {
    result[key] = object[key];
  }
  return result;
}
