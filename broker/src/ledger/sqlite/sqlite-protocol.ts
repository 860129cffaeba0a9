/**
 * What the ledger's main thread and its worker say to each other.
 *
 * Appends travel as one flat array for each batch and are answered in the order in which they were sent, so that they need
 * neither an id nor an object of their own: cloning objects between threads costs more than the insert.
 */
import type { LaneMember, LanePlace } from "../../domain/ports/lanes.js";
import type { BlobPlace, EntryPlace, IndexMark, LedgerErrorCode, StoredEntry, TailedEntry, Version } from "../../domain/ports/ledger.js";

/** Handed to the worker when it starts. */
export interface WorkerSetup {
  readonly dataDir: string;
  /** How long a statement waits for a lock that some other program holds on the database file. */
  readonly busyTimeoutMs: number;
}

/** Fields of one append in {@link Batch.appends}: call id, expected version, entry id, data, mark, note ("" for none). */
export const APPEND_STRIDE = 6;
/** Fields of one answer in {@link Answers.appends}: outcome, version. */
export const OUTCOME_STRIDE = 2;

export const OUTCOMES = ["appended", "duplicate", "conflict"] as const;
export const MARKS: readonly IndexMark[] = ["none", "opens", "settles"];

/** Anything but an append. `id` is echoed in the {@link Answer}. */
export type Request = { readonly id: number } & (
  | { readonly op: "read"; readonly callId: string; readonly from: Version }
  | { readonly op: "page"; readonly from: Version }
  | { readonly op: "open_calls"; readonly after: string }
  | { readonly op: "put_blob"; readonly name: string; readonly text: string }
  | { readonly op: "get_blob"; readonly name: string }
  | { readonly op: "join_lane"; readonly lane: string; readonly callId: string }
  | { readonly op: "first_in_lane"; readonly lane: string }
  | { readonly op: "leave_lane"; readonly lane: string; readonly callId: string; readonly place: LanePlace }
  | { readonly op: "places"; readonly from: Version }
  | { readonly op: "remove"; readonly callId: string; readonly versions: readonly Version[] }
  | { readonly op: "blob_places"; readonly from: number }
  | { readonly op: "blob_place"; readonly name: string }
  | { readonly op: "remove_blob"; readonly name: string; readonly place: number }
  | { readonly op: "check" }
  | { readonly op: "close" }
);

export interface Batch {
  readonly appends: readonly (string | number)[];
  readonly requests: readonly Request[];
}

export type Answer =
  | { readonly id: number; readonly kind: "entries"; readonly entries: readonly StoredEntry[]; readonly more: boolean }
  | { readonly id: number; readonly kind: "tailed"; readonly entries: readonly TailedEntry[]; readonly more: boolean }
  | { readonly id: number; readonly kind: "call_ids"; readonly callIds: readonly string[]; readonly more: boolean }
  | { readonly id: number; readonly kind: "text"; readonly text: string }
  | { readonly id: number; readonly kind: "lane"; readonly member: LaneMember | undefined }
  | { readonly id: number; readonly kind: "places"; readonly places: readonly EntryPlace[]; readonly more: boolean }
  | { readonly id: number; readonly kind: "blob_places"; readonly places: readonly BlobPlace[]; readonly more: boolean }
  | { readonly id: number; readonly kind: "place"; readonly place: number | undefined }
  | { readonly id: number; readonly kind: "removed"; readonly removed: boolean }
  | { readonly id: number; readonly kind: "done" }
  | { readonly id: number; readonly kind: "refused"; readonly code: LedgerErrorCode | "blob_name_taken"; readonly message: string };

export type WorkerMessage =
  | { readonly kind: "ready"; readonly latest: Version }
  | { readonly kind: "not_ready"; readonly code: LedgerErrorCode | undefined; readonly message: string }
  | ({ readonly kind: "answers" } & Answers)
  /** A transaction failed: whether its entries are stored is unknown, and nothing is answered any more. */
  | { readonly kind: "fatal"; readonly message: string };

export interface Answers {
  readonly appends: readonly number[];
  readonly answers: readonly Answer[];
  /** The newest version that is committed. */
  readonly latest: Version;
}
