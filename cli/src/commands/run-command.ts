/** `toolrunner run`: what it takes. The SDK and its transports are loaded when it runs: most commands need none of them. */
import type { Command } from "commander";
import { seconds, wholeNumber } from "../input.js";
import { type CommandContext, command } from "./command.js";
import { logLevelOption } from "./logs.js";
import { JOURNAL_FOLDER, type RunOptions } from "./run-options.js";
import { DRAIN_MS_DEFAULT } from "./serve.js";

/** `toolrunner run FILE` */
export function runCommand({ io, act }: CommandContext): Command {
  return command("run <file>", "serve the tools that a module exports, TypeScript or JavaScript, as an array by default")
    .option(
      "--url <url>",
      "the broker: ws(s)://, grpc(s):// or http(s):// for its WebSocket (else TOOLRUNNER_RUNNER_URL, else ./.toolrunner/dev.json)",
    )
    .option("--binding <id>", "what the runner serves (default: the file's name)")
    .option("--token <key>", "the runner key (else TOOLRUNNER_RUNNER_TOKEN, else ./.toolrunner/dev.json)")
    .option("--token-file <file>", "a file with the runner key, read again for each connection (else TOOLRUNNER_RUNNER_TOKEN_FILE)")
    .option("--subject <id>", "the end user on whose behalf it runs tools")
    .option("--runner-id <id>", "a stable id (default: made from the journal)")
    .option("--journal <file>", `where it keeps what it started and finished (default: one of its own in ./${JOURNAL_FOLDER})`)
    .option("--ready-file <file>", "a file that is there while it takes calls, for health checks")
    .option("--concurrency <n>", "calls that run at once", wholeNumber(1, 1_024), 16)
    .addOption(logLevelOption("warn"))
    .option("--drain-seconds <n>", "longest drain at SIGTERM", seconds(3_600), DRAIN_MS_DEFAULT / 1000)
    .action(
      act(async (file: string, options: RunOptions) => {
        const { serveTools } = await import("./serve-tools.js");
        return serveTools(file, options, io);
      }),
    );
}
