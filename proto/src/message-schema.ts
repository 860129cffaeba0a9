/** Form of the generated field tables that drive the JSON codec of frames. */

/** Kinds of fields that frames have. `string_map` is `map<string, string>`. */
export type FieldKind = "string" | "bool" | "uint32" | "int64" | "double" | "enum" | "message" | "string_map";

/** One field of a message. */
export interface FieldSchema {
  /** Property of the generated type. */
  readonly name: string;
  /** lowerCamelCase name: what is written. */
  readonly json: string;
  /** snake_case name of the .proto file: read as well. */
  readonly proto: string;
  readonly kind: FieldKind;
  /** The property that holds `{ $case, value }`, when the field is a member of a oneof. */
  readonly oneof?: string;
  /** Knows absence: `undefined` differs from the zero value. */
  readonly optional?: boolean;
  readonly repeated?: boolean;
  /** Name of the message, for `message`. */
  readonly type?: string;
  /** Full value names and their numbers, for `enum`. */
  readonly names?: Readonly<Record<string, number>>;
}

/** Fields of each message, by its name without package. */
export type MessageSchemas = Readonly<Record<string, readonly FieldSchema[]>>;
