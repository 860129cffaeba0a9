/** `bindings`, `toolsets` and `tools`: what is in the catalog. */
import type { Command } from "commander";
import type { ApiClient } from "../api-client.js";
import { bindingOfFile, checkedId } from "../connect/ids.js";
import { CliError, EXIT, type ExitCode, usageError } from "../errors.js";
import { isObject, readJsonFile, wholeNumber } from "../input.js";
import { type CliIo, printJson, printTable } from "../io.js";
import { type ApiOptions, apiCommand, apiOf, type CommandContext, group } from "./command.js";
import { allRows, cell, field, type JsonObject, type PageOptions, paged, printList, printObject } from "./listing.js";

const segment = encodeURIComponent;

/** `toolrunner bindings` */
export function bindingsCommand({ io, act }: CommandContext): Command {
  return group("bindings", "places where tools run", [
    paged(apiCommand("list", "list bindings, newest first")).action(
      act(async (options: ApiOptions & PageOptions) =>
        printList(
          await apiOf(options, io),
          "/v1/bindings",
          [field("id"), field("kind"), field("name"), field("created_at", "created")],
          options,
          io,
        ),
      ),
    ),
    apiCommand("get <id>", "print a binding").action(
      act(async (id: string, options: ApiOptions) => {
        const api = await apiOf(options, io);
        return printObject((await api.request("GET", `/v1/bindings/${segment(id)}`)).body, options, io);
      }),
    ),
    apiCommand("put <file>", 'register a binding: {"id":…,"name":…,"kind":"browser|desktop|backend"}; - reads standard input')
      .option("--id <id>", "its id, when the file names none")
      .action(
        act(async (file: string, options: ApiOptions & { readonly id?: string }) => {
          const content = await readObject(file, io);
          const id = idOf(content, options.id, file);
          const { id: _id, created_at: _created, type: _type, ...body } = content;
          return put(await apiOf(options, io), `/v1/bindings/${id}`, { name: id, kind: "backend", ...body }, `binding ${id}`, options, io);
        }),
      ),
  ]);
}

/** `toolrunner toolsets` */
export function toolsetsCommand({ io, act }: CommandContext): Command {
  return group("toolsets", "named groups of tools, in versions", [
    paged(apiCommand("list", "list toolsets, newest first")).action(
      act(async (options: ApiOptions & PageOptions) => printList(await apiOf(options, io), "/v1/toolsets", TOOLSET_COLUMNS, options, io)),
    ),
    apiCommand("get <id>", "print a toolset")
      .option("--version <n>", "a version instead of the latest", wholeNumber(1, Number.MAX_SAFE_INTEGER))
      .action(
        act(async (id: string, options: ApiOptions & { readonly version?: number }) => {
          const api = await apiOf(options, io);
          const path =
            options.version === undefined ? `/v1/toolsets/${segment(id)}` : `/v1/toolsets/${segment(id)}/versions/${options.version}`;
          return printObject((await api.request("GET", path)).body, options, io);
        }),
      ),
    paged(apiCommand("versions <id>", "list a toolset's versions")).action(
      act(async (id: string, options: ApiOptions & PageOptions) =>
        printList(await apiOf(options, io), `/v1/toolsets/${segment(id)}/versions`, TOOLSET_COLUMNS, options, io),
      ),
    ),
    apiCommand("put <file>", 'save the next version: {"id":…,"base_version":…,"tools":[…]}, as `get` prints it; - reads standard input')
      .option("--id <id>", "its id, when the file names none")
      .option(
        "--base-version <n>",
        "the version that was edited (else the file's base_version or version, else the latest)",
        wholeNumber(0, Number.MAX_SAFE_INTEGER),
      )
      .option("--idempotency-key <key>", "repeat this save safely")
      .action(act(async (file: string, options: PutToolsetOptions) => putToolset(file, options, io))),
  ]);
}

interface PutToolsetOptions extends ApiOptions {
  readonly id?: string;
  readonly baseVersion?: number;
  readonly idempotencyKey?: string;
}

const TOOLSET_COLUMNS = [
  field("id"),
  field("version"),
  [
    "tools",
    (row: JsonObject) =>
      cell(Array.isArray(row["tools"]) ? row["tools"].map((tool: unknown) => (isObject(tool) ? tool["name"] : "?")).join(" ") : null),
  ],
  field("created_at", "created"),
] as const;

async function putToolset(file: string, options: PutToolsetOptions, io: CliIo): Promise<ExitCode> {
  const content = await readObject(file, io);
  const id = idOf(content, options.id, file);
  if (!Array.isArray(content["tools"])) throw usageError(`${file}: "tools" is missing or not an array`);
  const api = await apiOf(options, io);
  const base = options.baseVersion ?? content["base_version"] ?? content["version"] ?? (await latestVersion(api, id));
  const key = options.idempotencyKey ?? content["idempotency_key"];
  const body = { base_version: base, tools: content["tools"], ...(key === undefined ? {} : { idempotency_key: key }) };
  return put(api, `/v1/toolsets/${id}`, body, `toolset ${id}`, options, io);
}

async function latestVersion(api: ApiClient, id: string): Promise<number> {
  try {
    const { body } = await api.request("GET", `/v1/toolsets/${id}`);
    return isObject(body) && typeof body["version"] === "number" ? body["version"] : 0;
  } catch (cause) {
    if (cause instanceof CliError && (cause.code === "not_found" || cause.code === "toolset_unknown")) return 0;
    throw cause;
  }
}

/** `toolrunner tools` */
export function toolsCommand({ io, act }: CommandContext): Command {
  return group("tools", "the tools of all toolsets", [
    apiCommand("list", "list tools with the toolset that holds them")
      .option("--toolset <id>", "of one toolset")
      .action(
        act(async (options: ApiOptions & { readonly toolset?: string }) => {
          const tools = await toolsOf(await apiOf(options, io), options.toolset);
          if (options.json) printJson(io, { data: tools, next_page: null });
          else {
            const columns = ["toolset", "name", "version", "binding", "behaviour", "description"];
            printTable(
              io,
              columns,
              tools.map((tool) => columns.map((name) => cell(tool[name]))),
            );
          }
          return EXIT.done;
        }),
      ),
    apiCommand("get <name>", "print a tool")
      .option("--toolset <id>", "of this toolset, when several have one of this name")
      .action(
        act(async (name: string, options: ApiOptions & { readonly toolset?: string }) => {
          const found = (await toolsOf(await apiOf(options, io), options.toolset)).filter((tool) => tool["name"] === name);
          const [tool, other] = found;
          if (tool === undefined)
            throw new CliError(
              "tool_unknown",
              EXIT.refused,
              `no toolset has a tool ${JSON.stringify(name)}: \`toolrunner tools\` lists them`,
            );
          if (other !== undefined)
            throw usageError(
              `toolsets ${found.map((each) => cell(each["toolset"])).join(", ")} have a tool ${JSON.stringify(name)}: name one with --toolset`,
            );
          return printObject(tool, options, io);
        }),
      ),
  ]);
}

async function toolsOf(api: ApiClient, toolset: string | undefined): Promise<readonly JsonObject[]> {
  const sets =
    toolset === undefined
      ? await allRows(api, "/v1/toolsets")
      : [(await api.request("GET", `/v1/toolsets/${segment(toolset)}`)).body].filter(isObject);
  return sets.flatMap((set) =>
    (Array.isArray(set["tools"]) ? set["tools"] : [])
      .filter(isObject)
      .map((tool) => ({ toolset: set["id"], toolset_version: set["version"], ...tool })),
  );
}

/** Reads a file that holds one JSON object. Throws a usage fault for anything else. */
export async function readObject(file: string, io: CliIo): Promise<JsonObject> {
  const content = await readJsonFile(file, "FILE", io);
  if (!isObject(content)) throw usageError(`FILE (${file}) does not hold a JSON object`);
  return content;
}

function idOf(content: JsonObject, option: string | undefined, file: string): string {
  if (option !== undefined) return checkedId(option, "--id");
  if (typeof content["id"] === "string") return checkedId(content["id"], `"id" in ${file}`);
  if (file === "-") throw usageError('the JSON on standard input has no "id": add one, or name it with --id');
  return bindingOfFile(file);
}

async function put(api: ApiClient, path: string, body: unknown, what: string, options: ApiOptions, io: CliIo): Promise<ExitCode> {
  const answer = await api.request("PUT", path, { body });
  if (options.json) printJson(io, answer.body);
  else {
    const version = isObject(answer.body) && typeof answer.body["version"] === "number" ? `, version ${answer.body["version"]}` : "";
    io.out(`${what} ${answer.status === 201 ? "created" : "saved"}${version}\n`);
  }
  return EXIT.done;
}
