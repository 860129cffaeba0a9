/** How a command is declared: the same `--json`, the same help, one way to end with an exit code. */
import { Command } from "commander";
import { type ApiClient, createApiClient } from "../api-client.js";
import { resolveAgent } from "../connect/connection.js";
import type { ExitCode } from "../errors.js";
import type { CliIo } from "../io.js";

/** What commands get. */
export interface CommandContext {
  readonly io: CliIo;
  /** Wraps a command's work: its exit code becomes the program's. */
  act<Arguments extends readonly unknown[]>(work: (...args: Arguments) => Promise<ExitCode>): (...args: Arguments) => Promise<void>;
}

/** Options that every command has. */
export interface JsonOption {
  readonly json?: true;
}

/** Options of every command that asks a broker. */
export interface ApiOptions extends JsonOption {
  readonly url?: string;
  readonly key?: string;
}

/** A command with `--json`, a description and without surplus arguments. */
export function command(nameAndArguments: string, description: string): Command {
  const [name = "", ...rest] = nameAndArguments.split(" ");
  const made = new Command(name).description(description).option("--json", "print JSON for programs");
  if (rest.length > 0) made.arguments(rest.join(" "));
  return made;
}

/** A command that asks a broker: `--url` and `--key` besides. */
export function apiCommand(nameAndArguments: string, description: string): Command {
  return command(nameAndArguments, description)
    .option("--url <url>", "the broker, http(s)://… (else TOOLRUNNER_URL, else ./.toolrunner/dev.json)")
    .option("--key <key>", "the agent key (else TOOLRUNNER_KEY, else ./.toolrunner/dev.json)");
}

/** A command that only groups others; `list` is run when none is named. */
export function group(name: string, description: string, members: readonly Command[]): Command {
  const made = new Command(name).description(description);
  for (const member of members) made.addCommand(member, { isDefault: member.name() === "list" });
  return made;
}

/** The broker's HTTP interface, with the address and key that the options, the environment or dev.json name. */
export async function apiOf(options: ApiOptions, io: CliIo): Promise<ApiClient> {
  return createApiClient(await resolveAgent(options, io));
}
