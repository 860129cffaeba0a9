/** What brokers and the owner of a binding with limits say to each other. */
import type { PermitAsk, PermitStanding } from "./permit-book.js";

/** To the owner of a binding. */
export type OwnerQuestion =
  | { readonly op: "admit"; readonly ask: PermitAsk; readonly hasRunner: boolean }
  | { readonly op: "acquire"; readonly ask: PermitAsk }
  | { readonly op: "note"; readonly ask: PermitAsk; readonly standing: PermitStanding }
  | { readonly op: "leave"; readonly callId: string; readonly brokerId: string }
  /** There is something to keep a book of. */
  | { readonly op: "sync" };
/** From the owner of a binding to a broker that drives calls on it. */
export type BrokerQuestion = { readonly op: "permit"; readonly callId: string } | { readonly op: "list"; readonly after: string };
/** `key` names the binding. */
export type PermitQuestion = { readonly key: string } & (OwnerQuestion | BrokerQuestion);

/** `unused`: the call takes no permit any more. */
export type PermitAnswer =
  | { readonly kind: "permit" | "queued" | "refused" | "done" | "not_owner" | "unused" }
  | { readonly kind: "list"; readonly calls: readonly ListedCall[]; readonly more: boolean };

/** A call as its broker sees it. */
export interface ListedCall {
  readonly ask: PermitAsk;
  readonly standing: PermitStanding;
}
