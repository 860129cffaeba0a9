/** `update` and `settle`: what the holder of a binding's runner key says about its submitted calls. */
import { type Command, Option } from "commander";
import { type ApiClient, createApiClient } from "../api-client.js";
import { resolveRunnerApi } from "../connect/connection.js";
import { EXIT, usageError } from "../errors.js";
import { readJsonArgument } from "../input.js";
import { type CliIo, printJson } from "../io.js";
import { type CommandContext, command, type JsonOption } from "./command.js";

interface RunnerApiOptions extends JsonOption {
  readonly url?: string;
  readonly token?: string;
  readonly tokenFile?: string;
}

function runnerCommand(nameAndArguments: string, description: string): Command {
  return command(nameAndArguments, description)
    .option("--url <url>", "the broker, http(s)://… (else TOOLRUNNER_URL, else ./.toolrunner/dev.json)")
    .option("--token <key>", "a runner key of the call's binding (else TOOLRUNNER_RUNNER_TOKEN, else ./.toolrunner/dev.json)")
    .option("--token-file <file>", "a file that holds it (else TOOLRUNNER_RUNNER_TOKEN_FILE)");
}

async function runnerApi(options: RunnerApiOptions, io: CliIo): Promise<ApiClient> {
  return createApiClient(await resolveRunnerApi(options, io));
}

const callPath = (id: string): string => `/v1/calls/${encodeURIComponent(id)}`;

interface UpdateOptions extends RunnerApiOptions {
  readonly text?: string;
  readonly percentage?: string;
  readonly data?: string;
  readonly idempotencyKey?: string;
}

/** `toolrunner update CALL` */
export function updateCommand({ io, act }: CommandContext): Command {
  return runnerCommand("update <call>", "tell how far the work of a submitted call is")
    .option("--text <text>", "for people")
    .option("--percentage <number>", "0 to 100")
    .option("--data <json>", "any JSON: inline, @file or -")
    .option("--idempotency-key <key>", "repeats with the same key are one update")
    .action(
      act(async (id: string, options: UpdateOptions) => {
        const percentage = options.percentage === undefined ? undefined : Number(options.percentage);
        if (percentage !== undefined && !(percentage >= 0 && percentage <= 100)) {
          throw usageError(`--percentage ${options.percentage} is no number from 0 to 100`);
        }
        const body = {
          text: options.text,
          percentage,
          ...(options.data === undefined ? {} : { data: await readJsonArgument(options.data, "--data", io) }),
          idempotency_key: options.idempotencyKey,
        };
        const answer = await (await runnerApi(options, io)).request("POST", `${callPath(id)}/updates`, { body });
        if (options.json) printJson(io, answer.body);
        else io.out(`${id} was told\n`);
        return EXIT.done;
      }),
    );
}

interface SettleOptions extends RunnerApiOptions {
  readonly outcome: "succeeded" | "failed" | "cancelled";
  readonly result?: string;
  readonly code?: string;
  readonly message?: string;
  readonly fence?: string;
}

/** `toolrunner settle CALL` */
export function settleCommand({ io, act }: CommandContext): Command {
  return runnerCommand("settle <call>", "give a submitted call its final outcome")
    .addOption(
      new Option("--outcome <outcome>", "succeeded (with --result), failed (with --code and --message), cancelled")
        .choices(["succeeded", "failed", "cancelled"])
        .makeOptionMandatory(),
    )
    .option("--result <json>", "the result: JSON, @file or -")
    .option("--code <code>", "of the failure, such as order_unknown")
    .option("--message <text>", "why it failed or was cancelled")
    .option("--fence <number>", "of the grant that the work was begun for")
    .action(
      act(async (id: string, options: SettleOptions) => {
        const body = await receiptOf(options, io);
        const answer = await (await runnerApi(options, io)).request("POST", `${callPath(id)}/receipt`, { body });
        if (options.json) printJson(io, answer.body);
        else io.out(`${id} is ${String((answer.body as { readonly state?: unknown }).state)}\n`);
        return EXIT.done;
      }),
    );
}

async function receiptOf({ outcome, result, code, message, fence }: SettleOptions, io: CliIo): Promise<object> {
  if ((result !== undefined) !== (outcome === "succeeded")) {
    throw usageError(
      outcome === "succeeded" ? "--outcome succeeded needs --result, null for none" : "--result goes with --outcome succeeded only",
    );
  }
  if ((code !== undefined) !== (outcome === "failed")) {
    throw usageError(outcome === "failed" ? "--outcome failed needs --code" : "--code goes with --outcome failed only");
  }
  const common = { outcome, ...(fence === undefined ? {} : { fence: Number(fence) }) };
  if (result !== undefined) return { ...common, result: await readJsonArgument(result, "--result", io) };
  return outcome === "failed" ? { ...common, error: { code, message: message ?? "" } } : { ...common, message };
}
