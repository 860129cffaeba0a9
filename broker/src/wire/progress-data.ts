/** What a runner tells of a call, as agents see it: the same for progress and for updates of a submitted call. */
import { PROGRESS_BYTES_MAX } from "../domain/limits.js";
import type { Json } from "../domain/ports/catalog.js";
import { readRunnerJson } from "./runner-json.js";

/** The fields that `progress` and `call_update` have in common. */
export interface ToldNews {
  readonly text: string;
  readonly percentage?: number | undefined;
  readonly dataJson: string;
}

/** A text says what is wrong with it. */
export function progressData({ text, percentage, dataJson }: ToldNews): { readonly [key: string]: Json } | string {
  const bytes = Buffer.byteLength(text) + Buffer.byteLength(dataJson);
  if (bytes > PROGRESS_BYTES_MAX) {
    return `${bytes} bytes, over the limit of ${PROGRESS_BYTES_MAX}`;
  }
  if (percentage !== undefined && !(percentage >= 0 && percentage <= 100)) {
    return "percentage is not between 0 and 100";
  }
  const read = dataJson === "" ? undefined : readRunnerJson(dataJson);
  if (read !== undefined && read.kind !== "json") {
    return `data_json is ${read.kind === "not_json" ? "not JSON" : "nested too deep"}`;
  }
  return {
    ...(text === "" ? {} : { text }),
    ...(percentage === undefined ? {} : { percentage }),
    ...(read === undefined ? {} : { data: read.json }),
  };
}
