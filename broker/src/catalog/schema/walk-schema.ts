/**
 * Walks a schema by its own grammar: what stands in `const`, `enum`, `default` or under an unknown keyword is data
 * and is left alone, unless a `$ref` makes a schema of it.
 */
import { child, resolvePointer } from "./json-pointer.js";

export interface SchemaNode {
  readonly schema: Record<string, unknown>;
  readonly path: string;
}

export interface SchemaVisitor {
  /** Each object that acts as a schema, once. */
  node(node: SchemaNode): void;
  /** A reference that leads out of this schema, or nowhere. */
  badReference(path: string, reference: string, why: "remote" | "missing"): void;
}

const SINGLES = [
  "additionalItems",
  "additionalProperties",
  "contains",
  "contentSchema",
  "else",
  "if",
  "items",
  "not",
  "propertyNames",
  "then",
  "unevaluatedItems",
  "unevaluatedProperties",
] as const;
const LISTS = ["allOf", "anyOf", "items", "oneOf", "prefixItems"] as const;
const MAPS = ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"] as const;
const REFERENCES = ["$ref", "$dynamicRef", "$recursiveRef"] as const;

interface Pending {
  readonly schema: unknown;
  readonly path: string;
  /** The innermost schema around it that has an `$id`: what `#/…` starts from. */
  readonly resource: SchemaNode;
}

/** Visits `root` and all schemas that it holds or refers to. The schema's depth must have been checked before. */
export function walkSchema(root: Record<string, unknown>, visitor: SchemaVisitor): void {
  const seen = new Set<object>();
  const pending: Pending[] = [{ schema: root, path: "", resource: { schema: root, path: "" } }];
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    const { schema, path } = next;
    if (!isObject(schema) || seen.has(schema)) continue;
    seen.add(schema);
    const resource = typeof schema.$id === "string" && !schema.$id.startsWith("#") ? { schema, path } : next.resource;
    visitor.node({ schema, path });

    for (const keyword of SINGLES) {
      pending.push({ schema: ownValue(schema, keyword), path: child(path, keyword), resource });
    }
    for (const keyword of LISTS) {
      const list = ownValue(schema, keyword);
      if (!Array.isArray(list)) continue;
      list.forEach((item, index) => {
        pending.push({ schema: item, path: child(child(path, keyword), index), resource });
      });
    }
    for (const keyword of MAPS) {
      const map = ownValue(schema, keyword);
      if (!isObject(map)) continue;
      for (const key of Object.keys(map)) {
        pending.push({ schema: map[key], path: child(child(path, keyword), key), resource });
      }
    }
    for (const keyword of REFERENCES) {
      const reference = ownValue(schema, keyword);
      if (typeof reference !== "string") continue;
      const at = child(path, keyword);
      if (!reference.startsWith("#")) {
        visitor.badReference(at, reference, "remote");
        continue;
      }
      const pointer = decode(reference.slice(1));
      // An anchor names a schema that is visited where it stands; the compiler says when there is none.
      if (pointer === undefined || (pointer !== "" && !pointer.startsWith("/"))) continue;
      const target = resolvePointer(resource.schema, pointer);
      if (target === undefined) visitor.badReference(at, reference, "missing");
      else pending.push({ schema: target, path: `${resource.path}${pointer}`, resource });
    }
  }
}

function decode(fragment: string): string | undefined {
  try {
    return decodeURIComponent(fragment);
  } catch {
    return undefined;
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function ownValue(schema: Record<string, unknown>, keyword: string): unknown {
  return Object.hasOwn(schema, keyword) ? schema[keyword] : undefined;
}
