/** The JSON Schema dialects that tools may be written in (features.md C9). */
import { createRequire } from "node:module";
import { Ajv, type AnySchemaObject, type ErrorObject, type Options } from "ajv";
import { Ajv2019 } from "ajv/dist/2019.js";
import { Ajv2020 } from "ajv/dist/2020.js";

export const DIALECTS = ["2020-12", "2019-09", "draft-07", "draft-06"] as const;
export type Dialect = (typeof DIALECTS)[number];

const URIS: Readonly<Record<Dialect, string>> = {
  "2020-12": "json-schema.org/draft/2020-12/schema",
  "2019-09": "json-schema.org/draft/2019-09/schema",
  "draft-07": "json-schema.org/draft-07/schema",
  "draft-06": "json-schema.org/draft-06/schema",
};

/** The dialect that `$schema` names, with http or https, with or without a trailing `#`; 2020-12 when it is absent. */
export function dialectOf(uri: unknown): Dialect | undefined {
  if (uri === undefined) return "2020-12";
  if (typeof uri !== "string") return undefined;
  const plain = uri.replace(/^https?:\/\//, "").replace(/#$/, "");
  return DIALECTS.find((dialect) => URIS[dialect] === plain);
}

/** What to put in `$schema` for each dialect, for messages. */
export function dialectNames(): string {
  return DIALECTS.map((dialect) => `http${dialect.startsWith("20") ? "s" : ""}://${URIS[dialect]}`).join(", ");
}

/** A new compiler of the dialect: one for each schema, so that ids never clash and nothing stays behind. */
export function newAjv(dialect: Dialect, options: Options): Ajv {
  switch (dialect) {
    case "2020-12":
      return new Ajv2020(options);
    case "2019-09":
      return new Ajv2019(options);
    case "draft-07":
    case "draft-06":
      return new Ajv(options);
  }
}

/** Checks schemas against the meta-schemas of the dialects, each of which is compiled on its first use. */
export interface MetaSchemas {
  /** What is wrong with `schema` as a schema; empty when nothing is. */
  check(dialect: Dialect, schema: AnySchemaObject): readonly ErrorObject[];
}

export function createMetaSchemas(): MetaSchemas {
  const validators = new Map<Dialect, Ajv>();
  return {
    check(dialect, schema) {
      let ajv = validators.get(dialect);
      if (ajv === undefined) {
        ajv = newAjv(dialect, { strict: false, allErrors: true, verbose: true, messages: false, logger: false, validateFormats: false });
        if (dialect === "draft-06")
          ajv.addMetaSchema(createRequire(import.meta.url)("ajv/dist/refs/json-schema-draft-06.json") as AnySchemaObject);
        validators.set(dialect, ajv);
      }
      const id = dialect.startsWith("draft") ? `http://${URIS[dialect]}` : `https://${URIS[dialect]}`;
      return ajv.validate(id, schema) === true ? [] : [...(ajv.errors ?? [])];
    },
  };
}
