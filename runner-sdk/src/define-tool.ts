/** Declares one tool: its interface, what may be done with it, and the handler that runs it. */
import type { ReconcileContext, Reconciliation, Submission, ToolContext } from "./core/context.js";
import type { InferSchema, JsonSchema, ToolSchema } from "./core/schema-types.js";

/** What {@link defineTool} takes. */
export interface ToolOptions<S extends ToolSchema = ToolSchema> {
  /** Starts with a letter; letters, digits, `_`, `.`, `-`; at most 64 characters. */
  readonly name: string;
  /** Version of the handler; "1" by default. Calls go only to handlers of the exact version that the toolset names. */
  readonly version?: string;
  /** What the model reads. */
  readonly description: string;
  /** Schema of the arguments; any object by default. */
  readonly input?: S;
  /** JSON Schema of the arguments, needed beside a Standard Schema that cannot write itself as one. */
  readonly inputJsonSchema?: JsonSchema;
  /** Schema of the result; anything by default. */
  readonly output?: ToolSchema;
  /** JSON Schema of the result, as {@link inputJsonSchema}. */
  readonly outputJsonSchema?: JsonSchema;
  /** Whether the tool changes anything; "write" by default. */
  readonly behaviour?: "read_only" | "write";
  /** Running it twice with one idempotency key does what running it once does; false by default. */
  readonly idempotent?: boolean;
  /** The handler ends soon after `ctx.signal` aborts; false by default. */
  readonly cancellable?: boolean;
  /** Time from acceptance to settlement over all attempts, 5–86,400 s; 300 by default. */
  readonly timeoutSeconds?: number;
  /** "completion" (default): the result settles the call. "submission": a handle ends the turn, the outcome follows. */
  readonly resultSemantics?: "completion" | "submission";
  /** How long a submitted call waits for its final outcome, 5–2,592,000 s; 604,800 (7 days) by default. Only with "submission". */
  readonly submissionTimeoutSeconds?: number;
  /** Bytes of the result that the model sees, 1,024–32,768; 16,384 by default. */
  readonly maxResultContextBytes?: number;
  /** Whether a person has to confirm each call; "never" by default. */
  readonly confirmation?: "never" | "always";
  /** Scopes that the caller must hold, at most 32. */
  readonly scopes?: readonly string[];
  /**
   * Runs the call. What it returns must be JSON (nothing is null). Throw a `ToolError` for a failure of the business;
   * anything else that is thrown settles the call as `handler_error`.
   */
  run(args: InferSchema<S>, ctx: ToolContext): unknown | Promise<unknown> | Submission;
  /**
   * Finds out what became of a call whose `run` was cut off with its process: looks at the system that `run` acts on, by
   * `ctx.idempotencyKey` or what `run` left there, and changes nothing. Asked only about a tool that is not safe to repeat, by a
   * broker whose call would wait for a person otherwise, and never while `run` is still at it in this process. It has 30 s; what it
   * throws counts as `unknown()`. It may be asked again.
   */
  reconcile?(ctx: ReconcileContext): Reconciliation | Promise<Reconciliation>;
}

/** A tool with its defaults filled in; checked by `createRunner`. */
export interface Tool {
  readonly name: string;
  readonly version: string;
  readonly description: string;
  readonly input: ToolSchema;
  readonly inputJsonSchema: JsonSchema | undefined;
  readonly output: ToolSchema | undefined;
  readonly outputJsonSchema: JsonSchema | undefined;
  readonly behaviour: "read_only" | "write";
  readonly idempotent: boolean;
  readonly cancellable: boolean;
  readonly timeoutSeconds: number;
  readonly resultSemantics: "completion" | "submission";
  /** Undefined: the broker's default. */
  readonly submissionTimeoutSeconds: number | undefined;
  readonly maxResultContextBytes: number;
  readonly confirmation: "never" | "always";
  readonly scopes: readonly string[];
  readonly run: (args: unknown, ctx: ToolContext) => unknown;
  readonly reconcile: ((ctx: ReconcileContext) => Reconciliation | Promise<Reconciliation>) | undefined;
}

/**
 * A tool from its options and the defaults: version "1", `write`, not idempotent, not cancellable, 300 s.
 * Faults are reported by `createRunner`, which sees all tools at once.
 */
export function defineTool<const S extends ToolSchema = { readonly type: "object" }>(options: ToolOptions<S>): Tool {
  return {
    name: options.name,
    version: options.version ?? "1",
    description: options.description,
    input: options.input ?? { type: "object" },
    inputJsonSchema: options.inputJsonSchema,
    output: options.output,
    outputJsonSchema: options.outputJsonSchema,
    behaviour: options.behaviour ?? "write",
    idempotent: options.idempotent ?? false,
    cancellable: options.cancellable ?? false,
    timeoutSeconds: options.timeoutSeconds ?? 300,
    resultSemantics: options.resultSemantics ?? "completion",
    submissionTimeoutSeconds: options.submissionTimeoutSeconds,
    maxResultContextBytes: options.maxResultContextBytes ?? 16_384,
    confirmation: options.confirmation ?? "never",
    scopes: options.scopes ?? [],
    // Kept as a call on the options, so that handlers written as methods keep their `this`.
    run:
      typeof options.run === "function" ? (args: unknown, ctx) => options.run(args as InferSchema<S>, ctx) : (options.run as Tool["run"]),
    reconcile: typeof options.reconcile === "function" ? options.reconcile.bind(options) : options.reconcile,
  };
}
