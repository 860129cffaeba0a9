/** Values that users pass as JSON: inline, from a file, or from standard input. */
import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { CommanderError, InvalidArgumentError } from "commander";
import { messageOf, usageError } from "./errors.js";
import type { CliIo } from "./io.js";

/** Reads `JSON`, `@file` or `-`. `where` names the option in the usage fault that is thrown when it is not JSON. */
export async function readJsonArgument(text: string, where: string, io: CliIo): Promise<unknown> {
  if (text === "-") return parseJson(await io.readStdin(), `${where} (standard input)`);
  if (text.startsWith("@")) return readJsonFile(text.slice(1), where, io);
  return parseJson(text, where);
}

/** Reads a file, or standard input for `-`. */
export async function readJsonFile(file: string, where: string, io: CliIo): Promise<unknown> {
  if (file === "-") return parseJson(await io.readStdin(), `${where} (standard input)`);
  let text: string;
  try {
    text = await readFile(resolve(io.cwd, file), "utf8");
  } catch (cause) {
    throw usageError(`${where}: ${file} cannot be read (${messageOf(cause)})`);
  }
  return parseJson(text, `${where} (${file})`);
}

function parseJson(text: string, where: string): unknown {
  try {
    return JSON.parse(text.replace(/^\ufeff/, ""));
  } catch (cause) {
    throw usageError(`${where} is not JSON: ${messageOf(cause)}`);
  }
}

/** Whether a JSON value is an object. */
export function isObject(value: unknown): value is { readonly [field: string]: unknown } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A parser for commander: a whole number within bounds. */
export function wholeNumber(from: number, to: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!/^\d+$/.test(text) || value < from || value > to) throw new InvalidArgumentError(`It is a whole number from ${from} to ${to}.`);
    return value;
  };
}

/** A parser for commander: a number of seconds, fractions allowed. */
export function seconds(to: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!/^\d+(\.\d+)?$/.test(text) || value > to) throw new InvalidArgumentError(`It is a number of seconds from 0 to ${to}.`);
    return value;
  };
}

/** Milliseconds of a day. */
export const DAY_MS = 86_400_000;
/** Ten years, in days: longer is for ever. */
const RETENTION_DAYS_MAX = 3_650;
/** A second is the shortest that a broker takes. */
const RETENTION_MS_MIN = 1_000;

/** A parser for commander: how many days settled calls are kept, or `never` removed. */
export function retentionDays(text: string): number | "never" {
  if (text === "never") return text;
  const days = Number(text);
  if (!/^\d+(\.\d+)?$/.test(text) || days * DAY_MS < RETENTION_MS_MIN || days > RETENTION_DAYS_MAX) {
    throw new InvalidArgumentError(
      `It is a number of days, from a second (0.0000116) to ${RETENTION_DAYS_MAX}, or never, which keeps all calls. There is no 0: calls could not be read.`,
    );
  }
  return days;
}

/** A parser for commander: an option that can be repeated. */
export function repeated(text: string, earlier: readonly string[] | undefined): readonly string[] {
  return [...(earlier ?? []), text];
}

/** Whether commander ended the program itself: after help, a version, or wrong usage. */
export function isCommanderEnd(cause: unknown): cause is CommanderError {
  return cause instanceof CommanderError;
}
