/**
 * A runner of the run, as a process: `node runner-program.js CONFIG`, with the config as JSON.
 *
 * Writes, each line synced: the start of each handler before anything else that it does, its end before its result is returned,
 * and each receipt that it sees acknowledged. Submissions are settled later, also by the next process of the same folder.
 */
import { join } from "node:path";
import { createRunner, defineTool, type Journal, type Runner, SubmissionError, type ToolContext, ToolError } from "@toolrunner/runner-sdk";
import { connectGrpc, connectWebSocket, fileJournal } from "@toolrunner/runner-sdk/node";
import { TOOLS, type ToolName, type WorkArguments } from "./call-mix.js";
import { openLineFile, readLines } from "./handler-files.js";
import type { AcknowledgedReceipt, HandlerEnd, HandlerStart } from "./history.js";
import { digestOf } from "./value-digest.js";

export interface RunnerConfig {
  readonly name: string;
  readonly transport: "websocket" | "grpc";
  readonly url: string;
  readonly binding: string;
  readonly token: string;
  /** Holds its journal, and the files that the checker reads. */
  readonly folder: string;
}

interface SubmittedCall {
  readonly call: string;
  readonly fence: number;
  readonly settleMs: number;
}

const DRAIN_MS = 6_000;
const SETTLE_TRIES = 40;
const SETTLE_AGAIN_MS = 250;

const config = JSON.parse(process.argv[2] ?? "null") as RunnerConfig;
const file = (name: string): string => join(config.folder, name);
const starts = openLineFile(file("starts"));
const ends = openLineFile(file("ends"));
const acknowledgements = openLineFile(file("acknowledged"));
const submissions = openLineFile(file("submissions"));

function ended(ctx: Pick<ToolContext, "callId" | "fence">, how: HandlerEnd["how"], value: unknown): void {
  const end: HandlerEnd = {
    runner: config.name,
    call: ctx.callId,
    fence: ctx.fence,
    atMs: Date.now(),
    how,
    value: value === undefined ? null : digestOf(value),
  };
  ends.write(end);
}

async function work(tool: ToolName, args: WorkArguments, ctx: ToolContext): Promise<unknown> {
  const start: HandlerStart = {
    runner: config.name,
    tool,
    call: ctx.callId,
    grant: ctx.grant.grantId,
    attempt: ctx.attempt,
    fence: ctx.fence,
    atMs: Date.now(),
  };
  starts.write(start);
  try {
    if (args.ms > 1_000) ctx.progress({ percentage: 10 });
    await worked(args.ms, TOOLS[tool].stops ? ctx.signal : undefined);
    if (ctx.attempt <= args.fails) throw new ToolError("busy", "not this time", { retryable: true, retryAfterSeconds: 0.2 });
    const value = { call: ctx.callId, fence: ctx.fence, by: config.name, padding: "x".repeat(args.bytes) };
    ended(ctx, tool === "ship" ? "submitted" : "returned", value);
    if (tool !== "ship") return value;
    const submitted: SubmittedCall = { call: ctx.callId, fence: ctx.fence, settleMs: args.settleMs };
    submissions.write(submitted);
    settleLater(submitted);
    return ctx.submit(value);
  } catch (cause) {
    ended(ctx, "threw", undefined);
    throw cause;
  }
}

function worked(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    const stop = (): void => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop, { once: true });
  });
}

function settleLater({ call, fence, settleMs }: SubmittedCall, tries = 1): void {
  setTimeout(() => {
    const result = { call, fence, settled: true };
    // Written before: whether the settlement is durable when a kill comes is for the journal to say.
    if (tries === 1) ended({ callId: call, fence }, "settled", result);
    runner.settle(call, { kind: "succeeded", result }).catch((cause: unknown) => {
      // Unknown: the handle is not in the journal yet, or a kill came first and it never will be. Settled: by the process before.
      const isOver = cause instanceof SubmissionError && cause.code === "submission_settled";
      if (!isOver && tries < SETTLE_TRIES) settleLater({ call, fence, settleMs: SETTLE_AGAIN_MS }, tries + 1);
    });
  }, settleMs);
}

/** The journal, watched for receipts whose acknowledgement came. */
function watched(journal: Journal): Journal {
  return {
    kind: journal.kind,
    durable: journal.durable,
    open: async (options) => {
      const opened = await journal.open(options);
      return new Proxy(opened, {
        get(target, property) {
          const value: unknown = Reflect.get(target, property, target);
          if (property === "note") {
            return (record: Parameters<typeof opened.note>[0]) => {
              if (record.kind === "acknowledged") acknowledged(target.view.get(record.grantId)?.receipt ?? null);
              target.note(record);
            };
          }
          return typeof value === "function" ? (value as (...args: unknown[]) => unknown).bind(target) : value;
        },
      });
    },
  };
}

function acknowledged(
  receipt: { readonly callId: string; readonly grantId: string; readonly fence: number; readonly digest: string } | null,
): void {
  if (receipt === null) return;
  const { callId: call, grantId: grant, fence, digest } = receipt;
  const line: AcknowledgedReceipt = { runner: config.name, call, grant, fence, digest, atMs: Date.now() };
  acknowledgements.write(line);
}

const tools = (Object.keys(TOOLS) as ToolName[]).map((name) => {
  const { behaviour, idempotent, cancellable, submission, timeoutSeconds } = TOOLS[name];
  return defineTool({
    name,
    description: "Takes its time.",
    behaviour,
    idempotent,
    cancellable,
    timeoutSeconds,
    resultSemantics: submission ? "submission" : "completion",
    run: (args, ctx) => work(name, args as unknown as WorkArguments, ctx),
  });
});
const runner: Runner = createRunner({
  transport: config.transport === "grpc" ? connectGrpc(config.url) : connectWebSocket(config.url),
  binding: config.binding,
  token: config.token,
  journal: watched(fileJournal(file("journal"))),
  runnerId: config.name,
  tools,
  concurrency: 32,
  log: (event, fields) => process.stderr.write(`${JSON.stringify({ time: new Date().toISOString(), event, ...fields })}\n`),
});
for (const submitted of readLines<SubmittedCall>(file("submissions"))) settleLater(submitted);
process.once("SIGTERM", () => {
  setTimeout(() => void runner.stop(), DRAIN_MS).unref();
  void runner.drain({ deadlineMs: DRAIN_MS });
});
// Whoever started it does not wait for a broker: there may be none.
process.stdout.write(`${JSON.stringify({ runner: config.name })}\n`);
runner.start().catch((cause: unknown) => process.stderr.write(`${JSON.stringify({ event: "start_failed", message: String(cause) })}\n`));
const state = await runner.closed;
process.stderr.write(`${JSON.stringify({ event: "closed", state: state.kind })}\n`);
process.exit(state.kind === "stopped" ? 0 : 1);
