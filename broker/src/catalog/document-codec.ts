/**
 * How the catalog's documents are named and written. Each carries its version `v`; one that a newer broker wrote in
 * another form is reported and passed over, never guessed at.
 */
import { createHash } from "node:crypto";
import { BrokerError } from "../domain/broker-error.js";
import { BINDING_KINDS, type BindingKind, type Limits } from "../domain/ports/catalog.js";
import { CatalogStoreError } from "../domain/ports/catalog-store.js";

export const paths = {
  bindings: (application: string) => `${application}/bindings/`,
  binding: (application: string, id: string) => `${application}/bindings/${id}`,
  toolsets: (application: string) => `${application}/toolsets/`,
  version: (application: string, id: string, version: number) =>
    `${application}/toolsets/${id}/versions/${String(version).padStart(8, "0")}`,
  /** What a save with an idempotency key came to when it made no version. */
  save: (application: string, id: string, key: string) => `${application}/toolsets/${id}/saves/${sha256(key)}`,
  content: (application: string, hash: string) => `${application}/tool-content/${hash}`,
};

/** The highest number that a version's path can hold. */
export const TOOLSET_VERSION_MAX = 99_999_999;

export interface BindingDocument {
  readonly name: string;
  readonly kind: BindingKind;
  readonly limits?: Limits;
  readonly created_at: string;
}

export interface VersionDocument {
  readonly created_at: string;
  readonly content_hash: string;
  /** In the order in which they were saved; `content` names the tool's own document. */
  readonly tools: readonly { readonly name: string; readonly content: string }[];
  /** Of the save that made it. */
  readonly idempotency: { readonly key_hash: string; readonly request_hash: string } | null;
}

export interface SaveDocument {
  readonly request_hash: string;
  readonly version: number;
}

export function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

export function encodeDocument(document: BindingDocument | VersionDocument | SaveDocument): string {
  return JSON.stringify({ v: 1, ...document });
}

export function decodeBinding(text: string): BindingDocument | undefined {
  const value = parseVersioned(text);
  const { name, kind, limits, created_at } = value ?? {};
  const known = BINDING_KINDS.find((candidate) => candidate === kind);
  if (typeof name !== "string" || known === undefined || typeof created_at !== "string") return undefined;
  // Written by this codec only, after they were checked.
  return { name, kind: known, ...(limits === undefined ? {} : { limits: limits as Limits }), created_at };
}

export function decodeVersion(text: string): VersionDocument | undefined {
  const value = parseVersioned(text);
  if (value === undefined || typeof value.created_at !== "string" || typeof value.content_hash !== "string" || !Array.isArray(value.tools))
    return undefined;
  return value as unknown as VersionDocument;
}

export function decodeSave(text: string): SaveDocument | undefined {
  const value = parseVersioned(text);
  return typeof value?.request_hash === "string" && typeof value.version === "number" ? (value as unknown as SaveDocument) : undefined;
}

function parseVersioned(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && (value as { v?: unknown }).v === 1
      ? (value as Record<string, unknown>)
      : undefined;
  } catch {
    return undefined;
  }
}

/** Runs a task on the store; a store that is away becomes a refusal that says what to do. */
export async function withStore<T>(task: () => Promise<T>): Promise<T> {
  try {
    return await task();
  } catch (error) {
    if (error instanceof CatalogStoreError && (error.code === "unreachable" || error.code === "closed")) {
      throw new BrokerError(
        "ledger_away",
        "The catalog's store does not answer: a change may have been stored. Repeat it with the same idempotency key.",
        {
          cause: error,
        },
      );
    }
    throw error;
  }
}
