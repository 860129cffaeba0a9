import { child } from "./json-pointer.js";

/** Why a value cannot be stored as it is, and where. */
export interface ShapeFault {
  readonly path: string;
  readonly kind: "too_deep" | "not_json";
}

/**
 * The first place where `value` nests deeper than `depthMax` objects and arrays, or holds something that JSON text cannot
 * (a number such as 1e400 is read as infinity and would be written as null). Never recurses: safe on hostile input.
 */
export function findShapeFault(value: unknown, depthMax: number): ShapeFault | undefined {
  const pending: { readonly value: unknown; readonly path: string; readonly depth: number }[] = [{ value, path: "", depth: 0 }];
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    const { path, depth } = next;
    const here = next.value;
    if (typeof here === "number" ? !Number.isFinite(here) : !isJsonLeaf(here) && typeof here !== "object")
      return { path, kind: "not_json" };
    if (typeof here !== "object" || here === null) continue;
    if (depth >= depthMax) return { path, kind: "too_deep" };
    if (Array.isArray(here)) {
      here.forEach((item, index) => {
        pending.push({ value: item, path: child(path, index), depth: depth + 1 });
      });
    } else {
      for (const key of Object.keys(here)) {
        pending.push({ value: (here as Record<string, unknown>)[key], path: child(path, key), depth: depth + 1 });
      }
    }
  }
  return undefined;
}

function isJsonLeaf(value: unknown): boolean {
  return value === null || typeof value === "string" || typeof value === "boolean" || typeof value === "number";
}
