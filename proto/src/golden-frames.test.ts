/**
 * Golden frames: every kind in both directions as canonical JSON and as bytes, committed for implementations in other languages (R10).
 * `UPDATE_GOLDEN=1` writes the bytes anew from the JSON of each file.
 */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { fromBinary, fromJson, type JsonValue, toBinary, toJson } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { brokerFrameCodec, runnerFrameCodec } from "./frame-codec.js";
import { FRAME_SCHEMAS } from "./gen/frame-schema.js";
import type { FieldSchema } from "./message-schema.js";
import { oracleOf } from "./testing/frame-arbitraries.js";

interface GoldenFrame {
  readonly name: string;
  readonly side: "runner" | "broker";
  readonly json: JsonValue;
  readonly hex: string;
}

const folder = new URL("../golden/", import.meta.url);
const golden = readdirSync(folder)
  .filter((file) => file.endsWith(".json"))
  .sort()
  .map((file) => ({ file, frame: JSON.parse(readFileSync(new URL(file, folder), "utf8")) as GoldenFrame }));

const codecOf = (side: "runner" | "broker", encoding: "binary" | "json") =>
  side === "runner" ? runnerFrameCodec(encoding) : brokerFrameCodec(encoding);

function frameOf(side: "runner" | "broker", encoding: "binary" | "json", data: Uint8Array | string): never {
  const decoded = codecOf(side, encoding).decode(data);
  if (decoded.kind !== "frame") throw new Error(`${decoded.kind}: ${"message" in decoded ? decoded.message : ""}`);
  return decoded.frame as never;
}

if (process.env.UPDATE_GOLDEN === "1") {
  for (const entry of golden) {
    const hex = Buffer.from(toBinary(oracleOf(entry.frame.side), fromJson(oracleOf(entry.frame.side), entry.frame.json))).toString("hex");
    entry.frame = { ...entry.frame, hex };
    writeFileSync(fileURLToPath(new URL(entry.file, folder)), `${JSON.stringify(entry.frame, null, 2)}\n`);
  }
}

describe("golden frames (R10)", () => {
  it.each(golden)("$file: JSON and bytes decode to the same frame", ({ frame: { side, json, hex } }) => {
    expect(frameOf(side, "json", JSON.stringify(json))).toEqual(frameOf(side, "binary", Buffer.from(hex, "hex")));
  });

  it.each(golden)("$file: the frame encodes to exactly these bytes and this JSON", ({ frame: { side, json, hex } }) => {
    const frame = frameOf(side, "json", JSON.stringify(json));
    expect(Buffer.from(codecOf(side, "binary").encode(frame) as Uint8Array).toString("hex")).toBe(hex);
    expect(JSON.parse(codecOf(side, "json").encode(frame) as string)).toEqual(json);
  });

  it.each(golden)("$file: a second implementation of protobuf agrees", ({ frame: { side, json, hex } }) => {
    const oracle = oracleOf(side);
    expect(toJson(oracle, fromBinary(oracle, Buffer.from(hex, "hex")))).toEqual(json);
    expect(Buffer.from(toBinary(oracle, fromJson(oracle, json))).toString("hex")).toBe(hex);
  });

  it.each(golden)("$file: cut off anywhere it is malformed, and never throws", ({ frame: { side, json, hex } }) => {
    const bytes = Buffer.from(hex, "hex");
    const codec = codecOf(side, "binary");
    for (let length = 1; length < bytes.length; length += 1) {
      expect({ length, kind: codec.decode(bytes.subarray(0, length)).kind }).toEqual({ length, kind: "malformed" });
    }
    const text = JSON.stringify(json);
    for (let length = 0; length < text.length; length += 1) {
      expect(codecOf(side, "json").decode(text.slice(0, length)).kind).toBe("malformed");
    }
  });

  it("hold every kind, every field and every enum value of both directions", () => {
    const wanted = new Set<string>();
    for (const [type, fields] of Object.entries(FRAME_SCHEMAS)) {
      for (const field of fields) {
        wanted.add(`${type}.${field.json}`);
        for (const [name, number] of Object.entries(field.names ?? {})) if (number !== 0) wanted.add(name);
      }
    }
    const visit = (type: string, json: JsonValue): void => {
      for (const [key, value] of Object.entries(json as Record<string, JsonValue>)) {
        const field = FRAME_SCHEMAS[type]?.find((candidate: FieldSchema) => candidate.json === key);
        wanted.delete(`${type}.${key}`);
        for (const item of Array.isArray(value) ? value : [value]) {
          if (field?.kind === "message") visit(field.type ?? "", item);
          if (field?.kind === "enum") wanted.delete(item as string);
        }
      }
    };
    for (const { frame } of golden) visit(frame.side === "runner" ? "RunnerFrame" : "BrokerFrame", frame.json);
    expect([...wanted]).toEqual([]);
  });
});
