/** `calls`, `cancel`, `confirm` and `reconcile`: looking at calls and deciding about them. */
import type { Command } from "commander";
import { Option } from "commander";
import { EXIT, usageError } from "../errors.js";
import { isObject, readJsonArgument } from "../input.js";
import { printJson } from "../io.js";
import { printCall } from "./call-view.js";
import { type ApiOptions, apiCommand, apiOf, type CommandContext, group } from "./command.js";
import { cell, field, type PageOptions, paged, printList, rowsOf } from "./listing.js";

const callPath = (id: string): string => `/v1/calls/${encodeURIComponent(id)}`;
const FILTERS = ["state", "tool", "toolset", "binding", "agent", "subject", "session"] as const;
type Filters = { readonly [name in (typeof FILTERS)[number]]?: string };

/** `toolrunner calls` */
export function callsCommand({ io, act }: CommandContext): Command {
  const list = paged(apiCommand("list", "list calls, newest first"));
  for (const name of FILTERS) list.option(`--${name} <${name}>`, `only those of this ${name}`);
  return group("calls", "calls that were made", [
    list.action(
      act(async (options: ApiOptions & PageOptions & Filters) =>
        printList(
          await apiOf(options, io),
          "/v1/calls",
          [
            field("id"),
            field("state"),
            field("toolset"),
            field("tool"),
            field("agent"),
            field("subject"),
            field("attempt"),
            field("waiting_for", "waits for"),
            field("created_at", "created"),
          ],
          options,
          io,
          Object.fromEntries(FILTERS.map((name) => [name, options[name]])),
        ),
      ),
    ),
    apiCommand("get <id>", "print a call").action(
      act(async (id: string, options: ApiOptions) => {
        printCall((await (await apiOf(options, io)).request("GET", callPath(id))).body, options, io);
        return EXIT.done;
      }),
    ),
    apiCommand("events <id>", "print what happened to a call so far").action(
      act(async (id: string, options: ApiOptions) => {
        const { body } = await (await apiOf(options, io)).request("GET", `${callPath(id)}/events`);
        if (options.json) printJson(io, body);
        else
          for (const event of rowsOf(body))
            io.out(`${cell(event["seq"]).padStart(4)}  ${cell(event["at"])}  ${cell(event["event"])}  ${dataText(event["data"])}\n`);
        return EXIT.done;
      }),
    ),
    apiCommand("result <id>", "print the whole result as compact JSON, however large").action(
      act(async (id: string, options: ApiOptions) => {
        const api = await apiOf(options, io);
        for (let offset = 0; ; ) {
          const { body } = await api.request("GET", `${callPath(id)}/result`, { query: { offset, max_bytes: 262_144 } });
          if (!isObject(body) || typeof body["text"] !== "string") throw usageError(`${id} has no result`);
          io.out(body["text"]);
          if (body["eof"] === true || typeof body["next_offset"] !== "number" || body["next_offset"] <= offset) break;
          offset = body["next_offset"];
        }
        io.out("\n");
        return EXIT.done;
      }),
    ),
  ]);
}

function dataText(data: unknown): string {
  return isObject(data) && Object.keys(data).length > 0 ? JSON.stringify(data) : "";
}

/** `toolrunner cancel CALL` */
export function cancelCommand({ io, act }: CommandContext): Command {
  return apiCommand("cancel <call>", "ask for a call to end")
    .addOption(
      new Option("--mode <mode>", "kill waits for the runner's answer, skip lets it run, killnowait does not wait")
        .choices(["kill", "skip", "killnowait"])
        .default("kill"),
    )
    .option("--reason <text>", "kept with the call")
    .action(
      act(async (id: string, options: ApiOptions & { readonly mode: string; readonly reason?: string }) => {
        const body = { mode: options.mode, ...(options.reason === undefined ? {} : { reason: options.reason }) };
        const answer = await (await apiOf(options, io)).request("POST", `${callPath(id)}/cancel`, { body, timeoutMs: 120_000 });
        printCall(answer.body, options, io);
        return EXIT.done;
      }),
    );
}

/** `toolrunner confirm CALL` */
export function confirmCommand({ io, act }: CommandContext): Command {
  return apiCommand("confirm <call>", "answer for a call that waits for a person")
    .addOption(new Option("--allow", "let it run").conflicts("deny"))
    .option("--deny", "refuse it")
    .action(
      act(async (id: string, options: ApiOptions & { readonly allow?: true; readonly deny?: true }) => {
        if (options.allow === undefined && options.deny === undefined) throw usageError("say which: --allow or --deny");
        const body = { decision: options.allow ? "allow" : "deny" };
        printCall((await (await apiOf(options, io)).request("POST", `${callPath(id)}/confirmation`, { body })).body, options, io);
        return EXIT.done;
      }),
    );
}

interface ReconcileOptions extends ApiOptions {
  readonly outcome: string;
  readonly result?: string;
  readonly note?: string;
}

/** `toolrunner reconcile CALL` */
export function reconcileCommand({ io, act }: CommandContext): Command {
  return apiCommand("reconcile <call>", "say what came of a call whose outcome is unknown")
    .addOption(
      new Option("--outcome <outcome>", "applied (with --result), not_applied, abandon")
        .choices(["applied", "not_applied", "abandon"])
        .makeOptionMandatory(),
    )
    .option("--result <json>", "the result of an applied call: JSON, @file or -")
    .option("--note <text>", "how you know; kept with the call")
    .action(
      act(async (id: string, options: ReconcileOptions) => {
        if ((options.result !== undefined) !== (options.outcome === "applied")) {
          throw usageError(
            options.outcome === "applied"
              ? "--outcome applied needs --result: the call's result, null for a tool without one"
              : "--result goes with --outcome applied only",
          );
        }
        const body = {
          outcome: options.outcome,
          ...(options.result === undefined ? {} : { result: await readJsonArgument(options.result, "--result", io) }),
          ...(options.note === undefined ? {} : { note: options.note }),
        };
        printCall((await (await apiOf(options, io)).request("POST", `${callPath(id)}/reconcile`, { body })).body, options, io);
        return EXIT.done;
      }),
    );
}
