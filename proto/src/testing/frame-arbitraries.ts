/** Generators of frames from the same field tables that drive the JSON codec, and a second implementation to compare with. */
import { create, createFileRegistry, type DescMessage, fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema, FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { FILE_DESCRIPTORS } from "../gen/file-descriptors.js";
import { FRAME_SCHEMAS } from "../gen/frame-schema.js";
import type { BrokerFrame, RunnerFrame } from "../gen/toolrunner/v1/session.js";
import type { FieldSchema } from "../message-schema.js";

const registry = createFileRegistry(
  create(FileDescriptorSetSchema, {
    file: Object.values(FILE_DESCRIPTORS).map((base64) => fromBinary(FileDescriptorProtoSchema, Buffer.from(base64, "base64"))),
  }),
);

/** The descriptor for protobuf-es, which is the second implementation. */
export function oracleOf(side: "runner" | "broker"): DescMessage {
  const message = registry.getMessage(`toolrunner.v1.${side === "runner" ? "RunnerFrame" : "BrokerFrame"}`);
  if (message === undefined) throw new Error("the descriptors have no such frame");
  return message;
}

const text = fc.string({ unit: "binary" });

function valuesOf(field: FieldSchema): fc.Arbitrary<unknown> {
  switch (field.kind) {
    case "message":
      return messagesOf(field.type ?? "");
    case "string":
      return text;
    case "bool":
      return fc.boolean();
    case "uint32":
      return fc.nat(0xffff_ffff);
    case "int64":
      return fc.oneof(fc.maxSafeInteger(), fc.constantFrom(0, 1, Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER));
    case "double":
      // JSON texts know no negative zero.
      return fc.double().map((value) => (value === 0 ? 0 : value));
    case "enum":
      // known values, and those of a newer peer
      return fc.oneof(fc.constantFrom(...Object.values(field.names ?? {})), fc.integer({ min: -0x8000_0000, max: 0x7fff_ffff }));
    case "string_map":
      // ts-proto loses entries with these names, in both directions
      return fc.dictionary(
        text.filter((key) => key !== "" && key !== "__proto__"),
        text.filter((value) => value !== ""),
        { noNullPrototype: true },
      );
  }
}

function messagesOf(type: string): fc.Arbitrary<object> {
  const fields = FRAME_SCHEMAS[type] ?? [];
  const parts: Record<string, fc.Arbitrary<unknown>> = {};
  for (const field of fields) {
    if (field.oneof !== undefined) {
      const members = fields.filter((other) => other.oneof === field.oneof);
      parts[field.oneof] ??= fc.oneof(
        fc.constant(undefined),
        ...members.map((member) => valuesOf(member).map((value) => ({ $case: member.name, value }))),
      );
    } else if (field.repeated) {
      parts[field.name] = fc.array(valuesOf(field), { maxLength: 4 });
    } else if (field.optional || field.kind === "message") {
      parts[field.name] = fc.option(valuesOf(field), { nil: undefined });
    } else {
      parts[field.name] = valuesOf(field);
    }
  }
  return fc.record(parts, { noNullPrototype: true });
}

/** Any frame of a runner, small. */
export const anyRunnerFrame = messagesOf("RunnerFrame") as fc.Arbitrary<RunnerFrame>;
/** Any frame of a broker, small. */
export const anyBrokerFrame = messagesOf("BrokerFrame") as fc.Arbitrary<BrokerFrame>;
