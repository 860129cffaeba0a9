/** Types of tool schemas: JSON Schema as written, the Standard Schema family, and what a handler's arguments are inferred to be. */

/** A JSON Schema as an object, or `true`/`false`. */
export type JsonSchema = { readonly [keyword: string]: unknown } | boolean;

/** What every object of the Standard Schema family has under `~standard`. */
export interface StandardTyped<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

/** A schema object that can write itself as JSON Schema (Standard JSON Schema). */
export interface StandardJsonSchema<Input = unknown, Output = Input> extends StandardTyped<Input, Output> {
  readonly "~standard": StandardTyped<Input, Output>["~standard"] & {
    readonly jsonSchema: {
      readonly input: (options: { readonly target: "draft-2020-12" | "draft-07" }) => Record<string, unknown>;
      readonly output: (options: { readonly target: "draft-2020-12" | "draft-07" }) => Record<string, unknown>;
    };
  };
}

/** What `input` and `output` of a tool take. */
export type ToolSchema = JsonSchema | StandardTyped;

/**
 * The TypeScript type that a schema describes, as far as it can be read off lightly: types, properties, required, items,
 * enum, const; `unknown` for the rest. A Standard Schema gives its own input type (its transformations do not run here).
 */
export type InferSchema<S> = S extends { readonly "~standard": { readonly types?: infer T } }
  ? NonNullable<T> extends { readonly input: infer Input }
    ? Input
    : unknown
  : S extends { readonly const: infer Value }
    ? Value
    : S extends { readonly enum: readonly (infer Value)[] }
      ? Value
      : S extends { readonly type: "string" }
        ? string
        : S extends { readonly type: "number" | "integer" }
          ? number
          : S extends { readonly type: "boolean" }
            ? boolean
            : S extends { readonly type: "null" }
              ? null
              : S extends { readonly type: "array"; readonly items: infer Items }
                ? InferSchema<Items>[]
                : S extends { readonly type: "array" }
                  ? unknown[]
                  : S extends { readonly type: "object" }
                    ? InferObject<S>
                    : unknown;

type InferObject<S> = S extends { readonly properties: infer Properties }
  ? {
      -readonly [K in keyof Properties as K extends RequiredOf<S> ? K : never]: InferSchema<Properties[K]>;
    } & {
      -readonly [K in keyof Properties as K extends RequiredOf<S> ? never : K]?: InferSchema<Properties[K]>;
    }
  : Record<string, unknown>;

type RequiredOf<S> = S extends { readonly required: readonly (infer Name)[] } ? Name : never;
