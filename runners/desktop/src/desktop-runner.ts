/**
 * The workspace tools on one person's machine.
 *
 * Invariant: serves its one subject and nobody else, whatever the broker sends.
 */
import { createWorkspace, type WorkspaceOptions, workspaceTools } from "@toolrunner/runner-backend";
import {
  type Authorization,
  allow,
  type CallContext,
  createRunner,
  forbid,
  type Journal,
  type Log,
  type Runner,
  type Tool,
  type Transport,
} from "@toolrunner/runner-sdk";
import { connectGrpc, connectWebSocket } from "@toolrunner/runner-sdk/node";

/** Options of `desktopTools`: those of a workspace. */
export type DesktopToolsOptions = WorkspaceOptions;

/** The tools of a desktop binding: `read`, `glob`, `grep` and `bash` on a folder of this machine. */
export function desktopTools(options: DesktopToolsOptions): Tool[] {
  return workspaceTools(options);
}

/**
 * An `authorize` that lets calls for one subject through and forbids every other.
 * @param subject not empty
 * @throws {RangeError} for an empty subject, which would let calls through that are for nobody
 */
export function onlyFor(subject: string): (ctx: CallContext) => Authorization {
  if (subject === "") throw new RangeError("A desktop runner needs the subject whose machine it is on.");
  return (ctx) => (ctx.subject === subject ? allow() : forbid("This machine belongs to another user."));
}

/** Options of `startDesktopRunner`. */
export interface DesktopRunnerOptions {
  /** `ws://`, `wss://`, `http://`, `https://`, `grpc://` or `grpcs://` address of a broker, or a transport. */
  readonly broker: string | Transport;
  /** Id of the binding; `desktop` by default. */
  readonly binding?: string;
  readonly token?: string;
  /** The person whose machine this is. */
  readonly subject: string;
  readonly workspace: DesktopToolsOptions;
  /** Where grants and receipts are kept; memory by default. */
  readonly journal?: Journal;
  readonly log?: Log;
}

/**
 * Makes and starts a runner for one person's machine. Resolves when it serves. When it has closed, what its commands left
 * running is ended.
 * @throws {RangeError} for an empty subject; what `createRunner` and `Runner.start` throw
 */
export async function startDesktopRunner(options: DesktopRunnerOptions): Promise<Runner> {
  const authorize = onlyFor(options.subject);
  const workspace = createWorkspace(options.workspace);
  const runner = createRunner({
    transport: typeof options.broker === "string" ? transportOf(options.broker) : options.broker,
    binding: options.binding ?? "desktop",
    subject: options.subject,
    tools: workspace.tools,
    authorize,
    labels: { platform: process.platform },
    ...(options.token === undefined ? {} : { token: options.token }),
    ...(options.journal === undefined ? {} : { journal: options.journal }),
    ...(options.log === undefined ? {} : { log: options.log }),
  });
  void runner.closed.then(() => workspace.close());
  await runner.start();
  return runner;
}

function transportOf(url: string): Transport {
  return /^grpcs?:/.test(url) ? connectGrpc(url) : connectWebSocket(url);
}
