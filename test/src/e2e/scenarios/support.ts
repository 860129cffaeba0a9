/** Tools and shortcuts that several scenarios use. */
import { defineTool, type Tool } from "@toolrunner/runner-sdk";
import type { Cell } from "../cell.js";

export const TEXT_INPUT = {
  type: "object",
  properties: { text: { type: "string" } },
  required: ["text"],
  additionalProperties: false,
} as const;

export interface EchoArguments {
  readonly text: string;
}

/** Answers its arguments, and counts how often it ran. */
export function echoTool(options: { readonly name?: string; readonly version?: string; readonly by?: string } = {}): {
  readonly tool: Tool;
  readonly runs: () => number;
} {
  let runs = 0;
  const tool = defineTool({
    name: options.name ?? "echo",
    version: options.version ?? "1",
    description: "Answers its text.",
    input: TEXT_INPUT,
    idempotent: true,
    cancellable: true,
    async run(args: EchoArguments) {
      runs += 1;
      return { text: args.text, ...(options.by === undefined ? {} : { by: options.by }) };
    },
  });
  return { tool, runs: () => runs };
}

/** A gate that a handler waits at until the test opens it. */
export function gate(): { readonly opened: Promise<void>; open(): void; readonly reached: Promise<void>; reach(): void } {
  let open: () => void = () => undefined;
  let reach: () => void = () => undefined;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  const reached = new Promise<void>((resolve) => {
    reach = resolve;
  });
  return { opened, open: () => open(), reached, reach: () => reach() };
}

/** A tool that waits at `gate`, then answers `done`; it ends early when its signal aborts. */
export function gatedTool(
  way: ReturnType<typeof gate>,
  options: {
    readonly idempotent?: boolean;
    readonly cancellable?: boolean;
    readonly onAbort?: (reason: unknown) => void;
    readonly onRun?: () => void;
  } = {},
): Tool {
  return defineTool({
    name: "gated",
    description: "Waits for the test.",
    input: { type: "object" },
    idempotent: options.idempotent ?? false,
    cancellable: options.cancellable ?? true,
    async run(_args: unknown, ctx) {
      options.onRun?.();
      way.reach();
      await new Promise<void>((resolve, reject) => {
        void way.opened.then(resolve);
        ctx.signal.addEventListener("abort", () => {
          options.onAbort?.(ctx.signal.reason);
          reject(ctx.signal.reason);
        });
      });
      return "done";
    },
  });
}

/** Registers a binding and a toolset of its name with these tools, as a product team does. */
export async function publish(
  cell: Cell,
  binding: string,
  kind: "browser" | "desktop" | "backend",
  tools: readonly Record<string, unknown>[],
): Promise<void> {
  const bound = await cell.http("PUT", `/v1/bindings/${binding}`, { name: binding, kind });
  const saved = await cell.http("PUT", `/v1/toolsets/${binding}`, {
    base_version: 0,
    tools: tools.map((tool) => ({ description: "A tool.", input_schema: { type: "object" }, binding, ...tool })),
  });
  if (bound.status > 201 || saved.status > 201) {
    throw new Error(`publish ${binding}: ${JSON.stringify([bound, saved])}`);
  }
}

/** The paths that an error object names. */
export function faultPaths(body: { readonly error?: Record<string, unknown> }): string[] {
  const details = (body.error?.details ?? []) as readonly { readonly path: string }[];
  return details.map(({ path }) => path);
}
