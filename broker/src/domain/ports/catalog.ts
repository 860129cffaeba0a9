/** The catalog as the rest of the broker sees it. Implemented in `catalog/`. */
import type { FaultDetail } from "../fault.js";

export const BINDING_KINDS = ["browser", "desktop", "backend"] as const;
export type BindingKind = (typeof BINDING_KINDS)[number];

export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

/** How many calls of a binding, or of a tool on it, run at once, and how many wait before more are refused. Absent: no limit. */
export interface Limits {
  /** 1 to `LIMIT_MAX`. */
  readonly concurrency?: number | undefined;
  /** 0 to `LIMIT_MAX`; 0: what cannot run at once is refused. */
  readonly queue?: number | undefined;
}

/** The limits that hold for one tool of one binding. */
export interface CallLimits {
  readonly binding: Limits | null;
  readonly tool: Limits | null;
}

export interface BindingView {
  readonly id: string;
  readonly name: string;
  readonly kind: BindingKind;
  /** Absent: none. */
  readonly limits?: Limits;
  readonly created_at: string;
}

/** A tool as stored and shown: the fields of features.md C3, defaults filled in. */
export interface ToolView {
  readonly name: string;
  readonly description: string;
  readonly input_schema: Json;
  readonly output_schema: Json | null;
  readonly binding: string;
  readonly behaviour: "read_only" | "write";
  readonly confirmation: "never" | "always";
  readonly result_semantics: "completion" | "submission";
  /** How long a submitted call waits for its final receipt. Only with `submission`, and absent where the default holds. */
  readonly submission_timeout_seconds?: number;
  readonly max_result_context_bytes: number;
  readonly version: string;
  readonly timeout_seconds: number;
  readonly idempotent: boolean;
  readonly cancellable: boolean;
  readonly scopes: readonly string[];
  /** Calls that run at once on the tool's binding. Absent: no limit of its own. */
  readonly max_concurrency?: number;
  /** Calls that wait before more are refused. Absent: no limit of its own. */
  readonly max_queue?: number;
}

export interface ToolsetView {
  readonly id: string;
  readonly version: number;
  readonly content_hash: string;
  readonly created_at: string;
  readonly tools: readonly ToolView[];
}

export interface ResolvedTool {
  readonly toolset: string;
  readonly toolsetVersion: number;
  readonly tool: ToolView;
  readonly bindingKind: BindingKind;
  /** What holds now. Absent: neither binding nor tool has any. */
  readonly limits?: CallLimits | undefined;
  /** All faults of `value` against the schema, as JSON Pointers; empty when it is valid. Compiled once for each tool content. */
  checkArguments(value: unknown): readonly FaultDetail[];
  /** Empty also when the tool has no output schema. */
  checkResult(value: unknown): readonly FaultDetail[];
}

/** A page of a listing. */
export interface Page<T> {
  readonly data: readonly T[];
  readonly next_page: string | null;
}
export interface PageRequest {
  /** 1 to 100, default 20. */
  readonly limit?: number | undefined;
  readonly page?: string | undefined;
}

/** All refusals are `BrokerError`s. */
export interface CatalogOperations {
  putBinding(
    application: string,
    id: string,
    body: { readonly name: string; readonly kind: BindingKind; readonly limits?: Limits | undefined },
  ): Promise<{ readonly created: boolean; readonly binding: BindingView }>;
  getBinding(application: string, id: string): Promise<BindingView>;
  listBindings(application: string, page: PageRequest): Page<BindingView>;
  /** `tools` as the caller wrote them (unchecked JSON): every fault is named with its path. */
  putToolset(
    application: string,
    id: string,
    body: { readonly base_version: number; readonly tools: readonly unknown[]; readonly idempotency_key?: string | undefined },
  ): Promise<{ readonly created: boolean; readonly toolset: ToolsetView }>;
  getToolset(application: string, id: string, version?: number): Promise<ToolsetView>;
  listToolsets(application: string, page: PageRequest): Page<ToolsetView>;
  listToolsetVersions(application: string, id: string, page: PageRequest): Page<ToolsetView>;
  /** For the path of a call. From memory when it is there. `BrokerError` `toolset_unknown`, `tool_unknown`, `toolset_version_unknown`. */
  resolveTool(application: string, toolset: string, tool: string, version?: number): Promise<ResolvedTool>;
  /** Development: merges by name into the toolset called like the binding; no new version when nothing differs. */
  mergeTools(application: string, binding: string, tools: readonly unknown[]): Promise<ToolsetView>;
}
