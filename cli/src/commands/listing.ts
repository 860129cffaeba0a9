/** What the listing commands share: pages, rows, single objects. */
import type { Command } from "commander";
import type { ApiClient, Query } from "../api-client.js";
import { EXIT, type ExitCode } from "../errors.js";
import { isObject, wholeNumber } from "../input.js";
import { type CliIo, printJson, printPretty, printTable } from "../io.js";
import type { JsonOption } from "./command.js";

/** Options of a listing. */
export interface PageOptions {
  readonly limit?: number;
  readonly page?: string;
}

/** Adds `--limit` and `--page`. */
export function paged(command: Command): Command {
  return command
    .option("--limit <n>", "how many, 1 to 100 (20)", wholeNumber(1, 100))
    .option("--page <token>", "go on from here: next_page of an earlier answer");
}

/** A column: its heading and the cell of a row. */
export type Column = readonly [heading: string, cell: (row: JsonObject) => string];
/** An object of the HTTP interface, not looked at closer. */
export type JsonObject = { readonly [field: string]: unknown };

/** A column of the field with this name; `null` and absent are `-`. */
export function field(name: string, heading: string = name): Column {
  return [heading, (row) => cell(row[name])];
}

/** A value as a cell. */
export function cell(value: unknown): string {
  if (value === undefined || value === null) return "-";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Asks for one page and prints it: the answer itself with `--json`, else a table and how to go on. */
export async function printList(
  api: ApiClient,
  path: string,
  columns: readonly Column[],
  options: JsonOption & PageOptions,
  io: CliIo,
  filters: Query = {},
): Promise<ExitCode> {
  const { body } = await api.request("GET", path, { query: { ...filters, limit: options.limit, page: options.page } });
  if (options.json) printJson(io, body);
  else {
    printTable(
      io,
      columns.map(([heading]) => heading),
      rowsOf(body).map((row) => columns.map(([, cellOf]) => cellOf(row))),
    );
    if (isObject(body) && typeof body["next_page"] === "string") io.out(`more: --page ${body["next_page"]}\n`);
  }
  return EXIT.done;
}

/** The rows of a list's answer. */
export function rowsOf(body: unknown): readonly JsonObject[] {
  return isObject(body) && Array.isArray(body["data"]) ? body["data"].filter(isObject) : [];
}

/** Every row of a list, page after page. */
export async function allRows(api: ApiClient, path: string, filters: Query = {}): Promise<readonly JsonObject[]> {
  const rows: JsonObject[] = [];
  for (let page: string | undefined; ; ) {
    const { body } = await api.request("GET", path, { query: { ...filters, limit: 100, page } });
    rows.push(...rowsOf(body));
    if (!isObject(body) || typeof body["next_page"] !== "string") return rows;
    page = body["next_page"];
  }
}

/** Prints one object: on one line with `--json`, else indented. */
export function printObject(value: unknown, options: JsonOption, io: CliIo): ExitCode {
  if (options.json) printJson(io, value);
  else printPretty(io, value);
  return EXIT.done;
}
