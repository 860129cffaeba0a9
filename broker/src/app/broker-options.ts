import type { Scope } from "../domain/ports/access.js";
import type { Bus } from "../domain/ports/bus.js";
import type { CatalogStore } from "../domain/ports/catalog-store.js";
import type { Ledger } from "../domain/ports/ledger.js";
import type { Log } from "../domain/ports/log.js";
import type { Figures } from "../wire/figures.js";

/** Where a broker keeps calls and catalog. */
export type StoreOptions =
  /** Nothing outlives the process. */
  | { readonly kind: "memory" }
  /** One process, no server; the folder is made when absent. */
  | { readonly kind: "sqlite"; readonly dataDir: string }
  /** Shared by any number of brokers. Default replicas 1, prefix `tr`. */
  | { readonly kind: "nats"; readonly url: string; readonly replicas?: 1 | 3 | undefined; readonly prefix?: string | undefined };

/** A key that the broker is started with; it is never stored. */
export interface StaticKey {
  readonly kind: "agent" | "runner";
  readonly id: string;
  readonly key: string;
  readonly application: string;
  /** Of an agent key; default: none. */
  readonly scopes?: readonly Scope[] | undefined;
  /** Of a runner key: `*` serves any binding. */
  readonly binding?: string | undefined;
  /** Of a runner key: only a development broker believes it. */
  readonly mayNameSubject?: boolean | undefined;
}

export interface Address {
  readonly host: string;
  /** 0 picks a free one. */
  readonly port: number;
}

export interface BrokerOptions {
  /** `dev` registers what runners bring and answers loopback names only. */
  readonly mode: "dev" | "broker";
  readonly store: StoreOptions;
  readonly http: Address;
  /** Null: no gRPC. */
  readonly grpc: Address | null;
  readonly staticKeys: readonly StaticKey[];
  /** Under `dev`: origins besides loopback that are answered. */
  readonly allowOrigins?: readonly string[] | undefined;
  /** Keep an index of calls for listings. Default true. */
  readonly index?: boolean | undefined;
  /** Largest result of a call, as JSON text: 1,024 to 16,777,216 bytes. Default 16,777,216. */
  readonly maxResultBytes?: number | undefined;
  /** How long settled calls are kept, with their results and idempotency keys: 1,000 ms to ten years, or `never` removed. Default seven days. */
  readonly retentionMs?: number | "never" | undefined;
  /** Default: silent. */
  readonly log?: Log | undefined;
  readonly figures?: Partial<Figures> | undefined;
  /** The release shown at `/healthz`. */
  readonly version?: string | undefined;
}

export interface BrokerAddresses {
  readonly http: string;
  readonly ws: string;
  readonly grpc: string | null;
}

/** The stores of a broker, opened. */
export interface Stores {
  readonly ledger: Ledger;
  readonly catalog: CatalogStore;
  readonly bus: Bus;
  /** Where the index of calls is kept. */
  readonly indexFile: string;
  /** Whether a later broker opens it again. */
  readonly indexLife: "kept" | "temporary";
  /** Closes what the stores stand on; they are closed before. */
  close(): Promise<void>;
}
