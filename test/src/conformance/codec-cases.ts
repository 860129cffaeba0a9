/** Golden frames: the subject turns each into the other encoding, both ways. */
import { readdirSync, readFileSync } from "node:fs";
import { type ConformanceCase, mustEqual } from "./run-cases.js";
import type { Subject } from "./subject.js";

interface GoldenFrame {
  readonly name: string;
  readonly side: "runner" | "broker";
  readonly json: unknown;
  readonly hex: string;
}

/** What a case about the codec needs. */
export interface CodecStage {
  readonly subject: Subject;
  needs(capability: string): Promise<void>;
}

const FOLDER = new URL("../../../proto/golden/", import.meta.url);

/** All golden frames in one process: a case for each kind would start hundreds. */
export function codecCase(): ConformanceCase<CodecStage> {
  const frames = readdirSync(FOLDER)
    .filter((file) => file.endsWith(".json"))
    .sort()
    .map((file) => ({ file, ...(JSON.parse(readFileSync(new URL(file, FOLDER), "utf8")) as GoldenFrame) }));
  return {
    id: "golden-frames",
    what: `All ${frames.length} golden frames turn from JSON into their bytes and back.`,
    section: "Transports",
    async run({ subject, needs }) {
      await needs("codec");
      let number = 0;
      const reencoded = async (command: { readonly [field: string]: unknown }): Promise<unknown> => {
        number += 1;
        const name = `${number}`;
        subject.tell({ do: "reencode", name, ...command });
        return (await subject.event("reencoded", (event) => event["name"] === name))["frame"];
      };
      for (const { file, side, json, hex } of frames) {
        const text = JSON.stringify(json);
        mustEqual(await reencoded({ side, from: "json", to: "binary", frame: text }), hex, `${file}: the bytes (hexadecimal) of ${text}`);
        const back = await reencoded({ side, from: "binary", to: "json", frame: hex });
        mustEqual(sorted(JSON.parse(String(back))), sorted(json), `${file}: the JSON of ${hex}`);
      }
    },
  };
}

/** The order of members means nothing. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, member]) => [key, sorted(member)]),
  );
}
