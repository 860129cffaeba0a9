/**
 * `toolrunner call`: one call, waited for and printed.
 *
 * Invariant: the call is made once. The client's requests carry one idempotency key, so that one whose answer was lost,
 * or that met a broker without its ledger, is repeated without making a second call.
 */
import type { ToolRunnerError } from "@toolrunner/agent-sdk";
import { type Command, Option } from "commander";
import { type ApiTarget, createApiClient, refusalText, unreachable } from "../api-client.js";
import { resolveAgentWithKey } from "../connect/connection.js";
import { CliError, type ErrorBody, EXIT, type ExitCode, messageOf } from "../errors.js";
import { readJsonArgument, seconds, wholeNumber } from "../input.js";
import type { CliIo } from "../io.js";
import { exitCodeOf, printCall } from "./call-view.js";
import { type ApiOptions, apiCommand, type CommandContext } from "./command.js";

interface CallOptions extends ApiOptions {
  readonly toolset: string;
  readonly args: string;
  readonly toolsetVersion?: number;
  readonly subject?: string;
  readonly agent?: string;
  readonly idempotencyKey?: string;
  readonly orderingKey?: string;
  readonly priority?: "interactive" | "background";
  readonly timeout?: number;
  readonly wait: number;
}

/** `toolrunner call TOOL` */
export function callCommand({ io, act }: CommandContext): Command {
  return apiCommand("call <tool>", "call a tool, wait, and print the call")
    .requiredOption("--toolset <id>", "the toolset that holds it")
    .option("--args <json>", "its arguments: JSON, @file, or - for standard input", "{}")
    .option("--toolset-version <n>", "a version of the toolset instead of the latest", wholeNumber(1, Number.MAX_SAFE_INTEGER))
    .option("--subject <id>", "the end user on whose behalf it runs")
    .option("--agent <id>", "the agent that calls")
    .option("--idempotency-key <key>", "the same key never makes a second call (default: a new one)")
    .option("--ordering-key <key>", "calls with the same key run one at a time, in order")
    .addOption(
      new Option("--priority <which>", "background: after everything interactive that waits").choices(["interactive", "background"]),
    )
    .option("--timeout <seconds>", "settle it by then; may only shorten the tool's own", wholeNumber(1, 86_400))
    .option("--wait <seconds>", "how long to wait for the outcome", seconds(86_400), 30)
    .action(act(async (tool: string, options: CallOptions) => call(tool, options, io)));
}

async function call(tool: string, options: CallOptions, io: CliIo): Promise<ExitCode> {
  const request = {
    toolset: options.toolset,
    tool,
    arguments: await readJsonArgument(options.args, "--args", io),
    ...(options.idempotencyKey === undefined ? {} : { idempotencyKey: options.idempotencyKey }),
    ...(options.toolsetVersion === undefined ? {} : { toolsetVersion: options.toolsetVersion }),
    ...(options.subject === undefined ? {} : { subject: options.subject }),
    ...(options.agent === undefined ? {} : { agent: options.agent }),
    ...(options.orderingKey === undefined ? {} : { orderingKey: options.orderingKey }),
    ...(options.priority === undefined ? {} : { priority: options.priority }),
    ...(options.timeout === undefined ? {} : { timeoutSeconds: options.timeout }),
  };
  const target = await resolveAgentWithKey(options, io);
  await expectBroker(target);
  const { createAgentClient, ToolRunnerError } = await import("@toolrunner/agent-sdk");
  const waitMs = options.wait * 1000;
  const client = createAgentClient({ ...target, retryForMs: Math.max(waitMs, RETRY_MS_MIN) });
  try {
    const made = await client.call(request, { waitMs });
    printCall(made, options, io);
    return exitCodeOf(made.state);
  } catch (cause) {
    if (!(cause instanceof ToolRunnerError)) throw cause;
    if (cause.code === "unreachable") throw unreachable(target.url, messageOf(cause.cause ?? cause), cause);
    throw refusalOf(cause);
  } finally {
    client.close();
  }
}

/** How long a call that got through to its broker once is repeated at least, while that broker restarts or its ledger is away. */
const RETRY_MS_MIN = 10_000;

/** The client repeats a request for as long as nobody answers; a broker that is not there at all is better said at once. */
async function expectBroker(target: ApiTarget): Promise<void> {
  try {
    await createApiClient({ url: target.url, key: undefined }).request("GET", "/healthz", { timeoutMs: 5_000 });
  } catch (cause) {
    if (cause instanceof CliError && cause.code === "unreachable") throw cause;
    // It answers, and will say itself what it thinks of the call.
  }
}

function refusalOf(error: ToolRunnerError): CliError {
  const { type, code, message, details, extra, requestId } = error;
  const body: ErrorBody = {
    type: "error",
    error: { type, code, message, ...(details.length === 0 ? {} : { details }), ...extra },
    ...(requestId === undefined ? {} : { request_id: requestId }),
  };
  return new CliError(code, EXIT.refused, refusalText(body), { body, cause: error });
}
