/** A call for people: a few lines that say what came of it; and the exit code that it means. */
import { EXIT, type ExitCode } from "../errors.js";
import { isObject } from "../input.js";
import { type CliIo, manyLines, oneLine, printJson } from "../io.js";
import { cell, type JsonObject } from "./listing.js";

const SETTLED = new Set(["succeeded", "failed", "cancelled", "timed_out", "denied"]);

/** Exit code of a call in this state: 0 succeeded or submitted, 1 settled otherwise, 3 still open. */
export function exitCodeOf(state: unknown): ExitCode {
  if (state === "succeeded" || state === "submitted") return EXIT.done;
  return typeof state === "string" && SETTLED.has(state) ? EXIT.failed : EXIT.stillOpen;
}

/** Prints a call: the object with `--json`, else {@link describeCall}. */
export function printCall(call: unknown, options: { readonly json?: true }, io: CliIo): void {
  if (options.json) printJson(io, call);
  else io.out(describeCall(isObject(call) ? call : {}));
}

/** A call in lines: what it is, where it stands, and its result or what went wrong. */
export function describeCall(call: JsonObject): string {
  const lines = [`${cell(call["id"])}  ${cell(call["toolset"])}/${cell(call["tool"])}  ${cell(call["state"])}${waiting(call)}`];
  const runner = isObject(call["receipt"]) ? call["receipt"]["runner_id"] : undefined;
  const facts = [
    `attempt ${cell(call["attempt"])}`,
    ...(typeof runner === "string" ? [`runner ${runner}`] : []),
    ...(isObject(call["receipt"]) ? [] : typeof call["deadline_at"] === "string" ? [`until ${call["deadline_at"]}`] : []),
    ...(elapsed(call) === undefined ? [] : [`${elapsed(call)} ms`]),
  ];
  lines.push(`  ${facts.join(", ")}`);
  const { error } = call;
  if (isObject(error)) {
    lines.push(`  ${cell(error["code"])}: ${cell(error["message"])}`);
    for (const detail of Array.isArray(error["details"]) ? error["details"].filter(isObject) : []) {
      lines.push(`    ${cell(detail["path"]) || "/"}: expected ${cell(detail["expected"])}, got ${cell(detail["actual"])}`);
    }
  }
  const head = lines.map(oneLine).join("\n");
  return `${head}\n${resultText(call)}`;
}

function waiting(call: JsonObject): string {
  return typeof call["waiting_for"] === "string" ? `, waits for ${call["waiting_for"]}` : "";
}

function elapsed(call: JsonObject): number | undefined {
  const [from, to] = [call["created_at"], call["settled_at"]];
  return typeof from === "string" && typeof to === "string" ? Date.parse(to) - Date.parse(from) : undefined;
}

/** The result as people want to read it: a string as it is, anything else as indented JSON. */
function resultText(call: JsonObject): string {
  if (typeof call["result_ref"] === "string") return `  the result is large, read it at ${call["result_ref"]}\n`;
  const { result } = call;
  if (result === undefined || result === null) return "";
  const text = typeof result === "string" ? result : JSON.stringify(result, null, 2);
  return text.endsWith("\n") ? manyLines(text) : `${manyLines(text)}\n`;
}
