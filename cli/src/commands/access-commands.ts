/** `keys` and `runners`: who may come in, and who has. */
import type { Command } from "commander";
import { CliError, EXIT } from "../errors.js";
import { isObject } from "../input.js";
import { printJson, printTable } from "../io.js";
import { readObject } from "./catalog-commands.js";
import { type ApiOptions, apiCommand, apiOf, type CommandContext, group } from "./command.js";
import { allRows, cell, field, type JsonObject, type PageOptions, paged, printList, printObject } from "./listing.js";

interface KeyOptions extends ApiOptions {
  readonly binding?: string;
}

/** `toolrunner keys`: agent keys, or with `--binding` the runner keys of a binding. */
export function keysCommand({ io, act }: CommandContext): Command {
  const keyCommand = (name: string, description: string): Command =>
    apiCommand(name, description).option("--binding <id>", "runner keys of this binding, instead of agent keys");
  return group("keys", "agent keys, and runner keys of a binding", [
    paged(keyCommand("list", "list keys; the keys themselves are never shown again")).action(
      act(async (options: KeyOptions & PageOptions) =>
        printList(
          await apiOf(options, io),
          keysPath(options),
          [field("id"), field("name"), scopes, field("created_at", "created"), field("revoked_at", "revoked")],
          options,
          io,
        ),
      ),
    ),
    keyCommand("get <id>", "print what is known of a key").action(
      act(async (id: string, options: KeyOptions) => {
        const api = await apiOf(options, io);
        return printObject((await api.request("GET", `${keysPath(options)}/${encodeURIComponent(id)}`)).body, options, io);
      }),
    ),
    keyCommand("put <file>", 'make a key and show it, once: {"name":…,"scopes":[…]}, {} for a runner key; - reads standard input').action(
      act(async (file: string, options: KeyOptions) => {
        const body = await readObject(file, io);
        const answer = await (await apiOf(options, io)).request("POST", keysPath(options), { body });
        if (options.json) printJson(io, answer.body);
        else if (isObject(answer.body)) io.out(`${cell(answer.body["id"])}  ${cell(answer.body["key"])}\nThe key is not shown again.\n`);
        return EXIT.done;
      }),
    ),
    keyCommand("delete <id>", "revoke a key; sessions that use it are closed").action(
      act(async (id: string, options: KeyOptions) => {
        const answer = await (await apiOf(options, io)).request("DELETE", `${keysPath(options)}/${encodeURIComponent(id)}`);
        if (options.json) printJson(io, answer.body);
        else io.out(`key ${id} revoked\n`);
        return EXIT.done;
      }),
    ),
  ]);
}

const scopes = [
  "scopes",
  (row: JsonObject) => cell(Array.isArray(row["scopes"]) ? row["scopes"].join(" ") : (row["binding"] ?? null)),
] as const;

function keysPath({ binding }: KeyOptions): string {
  return binding === undefined ? "/v1/keys" : `/v1/bindings/${encodeURIComponent(binding)}/keys`;
}

/** `toolrunner runners` */
export function runnersCommand({ io, act }: CommandContext): Command {
  return group("runners", "processes and tabs that are connected now", [
    paged(apiCommand("list", "list runners, newest first")).action(
      act(async (options: ApiOptions & PageOptions) =>
        printList(
          await apiOf(options, io),
          "/v1/runners",
          [
            field("runner_id", "runner"),
            field("binding"),
            field("subject"),
            field("transport"),
            field("slots"),
            field("grants_held", "running"),
            handlers,
            field("connected_at", "connected"),
          ],
          options,
          io,
        ),
      ),
    ),
    apiCommand("get <id>", "print a runner and its handlers").action(
      act(async (id: string, options: ApiOptions) => {
        const api = await apiOf(options, io);
        const found = (await allRows(api, "/v1/runners")).filter((row) => row["runner_id"] === id);
        if (found.length === 0)
          throw new CliError(
            "not_found",
            EXIT.refused,
            `no runner ${JSON.stringify(id)} is connected: \`toolrunner runners\` lists those that are`,
          );
        if (found.length === 1) return printObject(found[0], options, io);
        if (options.json) printJson(io, found);
        else
          printTable(
            io,
            ["runner", "binding", "broker"],
            found.map((row) => [cell(row["runner_id"]), cell(row["binding"]), cell(row["broker_id"])]),
          );
        return EXIT.done;
      }),
    ),
  ]);
}

const handlers = [
  "handlers",
  (row: JsonObject) =>
    cell(
      Array.isArray(row["handlers"])
        ? row["handlers"].map((each: unknown) => (isObject(each) ? `${cell(each["tool"])}@${cell(each["version"])}` : "?")).join(" ")
        : null,
    ),
] as const;
