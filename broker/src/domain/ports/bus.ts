/**
 * The bus port: messages between brokers, and small shared records with revisions.
 * Nothing on it is durable truth; what is lost on it is asked for again.
 */

/** Bus messages stay under this; larger values travel as ledger blobs. */
export const BUS_MESSAGE_BYTES_MAX = 1_048_576 - 16_384;

export interface Subscription {
  unsubscribe(): void;
}

export interface Bus {
  readonly description: { readonly kind: "local" | "nats" };
  /** Fire and forget. Subjects are dot-separated tokens of `[A-Za-z0-9_-]`, without the bus's own prefix. */
  publish(subject: string, payload: string): void;
  /** The last token of `subject` may be `*` or `>`. The listener must not throw; it may be called re-entrantly by a local publish. */
  subscribe(subject: string, listener: (payload: string, subject: string) => void): Subscription;
  /** One answer, or {@link BusError} `no_responder` (at once where the bus can tell) or `timeout`. */
  request(subject: string, payload: string, options: { readonly timeoutMs: number }): Promise<string>;
  /** All answers that arrive within `timeoutMs`, at most `max`; ends early when nobody listens. */
  requestMany(subject: string, payload: string, options: { readonly timeoutMs: number; readonly max: number }): Promise<string[]>;
  /** Answers requests. `undefined` gives no answer (another responder may). A rejection is sent as no answer and logged. */
  respond(subject: string, responder: (payload: string, subject: string) => Promise<string | undefined>): Subscription;
  /** The shared records called `name` (`brokers`, `sessions`). */
  registry(name: string): Promise<Registry>;
  /** Resolves when the bus works now; rejects with `unreachable`. */
  check(): Promise<void>;
  /** Connection comes and goes; called with the present state at once. */
  onState(listener: (state: "up" | "down") => void): Subscription;
  close(): Promise<void>;
}

export interface RegistryRecord {
  readonly key: string;
  readonly value: string;
  /** Rises with every write to the registry, never reused. */
  readonly revision: number;
}

export interface Registry {
  /** Writes unconditionally; returns the new revision. Keys: dot-separated tokens of `[A-Za-z0-9_-]`. */
  put(key: string, value: string): Promise<number>;
  /** Writes only when the key's revision is `expected` (0: no record); `undefined` when it is not. */
  update(key: string, value: string, expected: number): Promise<number | undefined>;
  get(key: string): Promise<RegistryRecord | undefined>;
  /** Deletes the record; with `expected`, only while its revision is that one. No-op otherwise. */
  delete(key: string, expected?: number): Promise<void>;
  list(): Promise<RegistryRecord[]>;
  /** First all present records, then `ready`, then changes as they come (also own ones). */
  watch(listener: (change: RegistryChange) => void): Promise<Subscription>;
}

export type RegistryChange =
  | { readonly kind: "put"; readonly record: RegistryRecord }
  | { readonly kind: "delete"; readonly key: string; readonly revision: number };

export type BusErrorCode =
  | "no_responder"
  | "timeout"
  | "unreachable"
  | "closed"
  | "too_large"
  /** The server, or a bucket on it, has settings that break the rules; a start-up fault. */
  | "misconfigured"
  /** The server is too old for what was asked; a start-up fault. */
  | "unsupported_server";

export class BusError extends Error {
  override readonly name = "BusError";
  constructor(
    readonly code: BusErrorCode,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}
