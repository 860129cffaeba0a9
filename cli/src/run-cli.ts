/**
 * The `toolrunner` program: commands put together, faults turned into messages and exit codes.
 *
 * Invariants: with `--json` a fault is exactly one error object on standard error; without it, one line; commands never end the process.
 */
import { readFileSync } from "node:fs";
import { Command, CommanderError } from "commander";
import { keysCommand, runnersCommand } from "./commands/access-commands.js";
import { brokerCommand, devCommand } from "./commands/broker-commands.js";
import { callCommand } from "./commands/call-command.js";
import { callsCommand, cancelCommand, confirmCommand, reconcileCommand } from "./commands/calls-commands.js";
import { bindingsCommand, toolsCommand, toolsetsCommand } from "./commands/catalog-commands.js";
import type { CommandContext } from "./commands/command.js";
import { runCommand } from "./commands/run-command.js";
import { settleCommand, updateCommand } from "./commands/submission-commands.js";
import { CliError, EXIT, type ExitCode, errorObject, messageOf } from "./errors.js";
import type { CliIo } from "./io.js";

/** Runs one command, `argv` without program and script, and returns its exit code. Never rejects. */
export async function runCli(argv: readonly string[], io: CliIo): Promise<ExitCode> {
  const json = argv.includes("--json");
  let exitCode: ExitCode = EXIT.done;
  const context: CommandContext = {
    io,
    act:
      (work) =>
      async (...args) => {
        exitCode = await work(...args);
      },
  };
  const program = programOf(context, json);
  try {
    await program.parseAsync([...argv], { from: "user" });
    return exitCode;
  } catch (cause) {
    return report(cause, json, io);
  }
}

function programOf(context: CommandContext, json: boolean): Command {
  const program = new Command("toolrunner")
    .description("Tools that AI agents call, run where your product lives.")
    .version(versionOf(), "--version", "print the version")
    // Or the program's --version would answer for a command's option of that name.
    .enablePositionalOptions()
    .addHelpText(
      "after",
      "\nExit codes: 0 done, 1 settled otherwise or not started, 2 wrong usage, 3 still open after --wait, 4 refused or unreachable.",
    );
  for (const make of COMMANDS) program.addCommand(make(context));
  configure(program, context.io, json);
  return program;
}

const COMMANDS = [
  devCommand,
  brokerCommand,
  runCommand,
  callCommand,
  callsCommand,
  toolsCommand,
  toolsetsCommand,
  runnersCommand,
  bindingsCommand,
  keysCommand,
  confirmCommand,
  cancelCommand,
  reconcileCommand,
  updateCommand,
  settleCommand,
] as const;

/** Commander ends the process and prints by itself unless each command is told otherwise. */
function configure(command: Command, io: CliIo, json: boolean): void {
  command
    .exitOverride()
    .configureOutput({ writeOut: (text) => io.out(text), writeErr: (text) => io.err(text), outputError: () => undefined })
    .helpCommand(false);
  if (!json) command.showSuggestionAfterError(true);
  for (const child of command.commands) configure(child, io, json);
}

function report(cause: unknown, json: boolean, io: CliIo): ExitCode {
  if (cause instanceof CommanderError && cause.exitCode === 0) return EXIT.done;
  if (cause instanceof CommanderError && cause.code === "commander.help") return EXIT.usage;
  const error = cliErrorOf(cause);
  io.err(json ? `${JSON.stringify(errorObject(error))}\n` : `toolrunner: ${error.message}\n`);
  return error.exitCode;
}

function cliErrorOf(cause: unknown): CliError {
  if (cause instanceof CliError) return cause;
  if (cause instanceof CommanderError) {
    return new CliError("usage", EXIT.usage, `${cause.message.replace(/^error: /, "").replace(/\s*\n\s*/g, " ")}; see --help`);
  }
  return new CliError("internal", EXIT.failed, `unexpected fault: ${messageOf(cause)}${cause instanceof Error ? placeOf(cause) : ""}`, {
    cause,
  });
}

function placeOf(error: Error): string {
  const line = error.stack?.split("\n").find((each) => each.startsWith("    at "));
  return line === undefined ? "" : ` (${line.trim()})`;
}

function versionOf(): string {
  const manifest: { readonly version: string } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));
  return manifest.version;
}
