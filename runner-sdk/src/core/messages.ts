/** What a session says and hears, in the runner's own words. `wire.ts` alone turns them into frames and back. */

/** How far a grant is, as reported to the broker. */
export type ReportedPhase = "not_started" | "running" | "outcome_unknown" | "finished";

/** One line of a report. */
export interface HeldReport {
  readonly callId: string;
  readonly grantId: string;
  readonly fence: number;
  readonly phase: ReportedPhase;
}

/** What names a grant in every frame about it. */
export interface GrantName {
  readonly callId: string;
  readonly grantId: string;
  readonly fence: number;
}

/** The right to run one call once. */
export interface Grant extends GrantName {
  readonly attempt: number;
  readonly sessionEpoch: number;
  readonly tool: string;
  readonly version: string;
  readonly argumentsJson: string;
  readonly subject: string;
  readonly agent: string;
  readonly idempotencyKey: string;
  readonly deadlineUnixMs: number;
  readonly remainingMs: number;
  readonly leaseMs: number;
  /** The newest answer that the broker had: 0 for the hello, else a pong. */
  readonly pongNumber: number;
  readonly traceparent: string;
  readonly token: string;
  readonly scopes: readonly string[];
  readonly toolset: string;
  readonly toolsetVersion: number;
  readonly session: string;
  readonly maxResultBytes: number;
}

/** Asks what became of a grant that this runner's journal saw start. */
export interface ReconcileOrder {
  /** A grant of its own, which names the answer. */
  readonly grant: Grant;
  readonly startedGrantId: string;
  readonly startedFence: number;
}

/** What a reconcile handler found, or why it was not asked. */
export type ReconcileOutcome =
  | { readonly kind: "applied"; readonly resultJson: string }
  | { readonly kind: "not_applied" }
  | { readonly kind: "unknown"; readonly message: string }
  | { readonly kind: "unavailable"; readonly message: string };

/** One thing that is wrong in a result. */
export interface OutcomeDetail {
  readonly path: string;
  readonly expected: string;
  readonly actual: string;
}

/** What came of a grant. Payloads are JSON texts. */
export type Outcome =
  | { readonly kind: "succeeded"; readonly resultJson: string }
  | {
      readonly kind: "failed";
      readonly code: string;
      readonly message: string;
      readonly retryable: boolean;
      readonly retryAfterMs: number;
      readonly details: readonly OutcomeDetail[];
    }
  | { readonly kind: "cancelled"; readonly message: string }
  | { readonly kind: "submitted"; readonly handleJson: string };

/** The durable statement of what came of a grant. */
export interface Receipt extends GrantName {
  readonly attempt: number;
  /** SHA-256 of the outcome, hexadecimal. */
  readonly digest: string;
  /** 0 when the handler never started. */
  readonly startedAtUnixMs: number;
  readonly finishedAtUnixMs: number;
  readonly outcome: Outcome;
}

/** Names the chunks that a result came in. */
export interface ChunkReference {
  readonly count: number;
  /** Of the whole, as UTF-8. */
  readonly bytes: number;
  /** SHA-256 of the whole, hexadecimal. */
  readonly sha256: string;
}

/** What the broker says of the chunks of a receipt's result. */
export interface ChunkAnswer {
  readonly callId: string;
  readonly grantId: string;
  /** The receipt's. */
  readonly digest: string;
  readonly verdict: "received" | "start_over" | "busy" | "refused" | "unknown";
  /** How many chunks it has; more than there are when it needs none. */
  readonly received: number;
  readonly retryAfterMs: number;
  readonly limitBytes: number;
  readonly message: string;
}

/** How the broker took a receipt (G5). */
export type ReceiptDisposition = "settled" | "repeated" | "evidence" | "expired" | "unknown";

export type CancelLevel = "delivered" | "stopped" | "ignored";

/** Limits that the broker named in its welcome; 0 stands for none. */
export interface SessionLimits {
  readonly frameBytes: number;
  readonly resultBytes: number;
  readonly progressBytes: number;
  readonly slots: number;
  /** Of a result that comes in chunks. */
  readonly chunkedResultBytes: number;
  /** Of the text of one chunk. */
  readonly chunkBytes: number;
}

export interface Welcome {
  readonly protocolVersion: number;
  readonly sessionEpoch: number;
  readonly brokerId: string;
  readonly pingIntervalMs: number;
  readonly leaseMs: number;
  readonly limits: SessionLimits;
  readonly wantsToolDefinitions: boolean;
  /** It takes a newer credential in band. */
  readonly renewsCredentials: boolean;
  /** False: the broker knows no updates of submitted calls. */
  readonly takesCallUpdates: boolean;
}

/** What became of an update of a submitted call. */
export type UpdateDisposition = "stored" | "not_submitted" | "settled" | "exhausted" | "unknown_call" | "conflict" | "unknown";

/** News of a submitted call, as it is sent. */
export interface CallUpdate {
  readonly callId: string;
  readonly updateId: string;
  readonly text: string;
  readonly percentage: number | undefined;
  /** "" for none. */
  readonly dataJson: string;
}

/** A frame from the broker. */
export type BrokerMessage =
  | { readonly kind: "welcome"; readonly welcome: Welcome }
  | {
      readonly kind: "refusal";
      readonly code: string;
      readonly message: string;
      readonly supportedVersions: readonly number[];
      readonly retryAfterMs: number;
    }
  | { readonly kind: "grant"; readonly grant: Grant }
  | { readonly kind: "cancel"; readonly name: GrantName; readonly reason: string }
  | { readonly kind: "revoke"; readonly name: GrantName; readonly reason: string }
  | { readonly kind: "reconcile"; readonly order: ReconcileOrder }
  | { readonly kind: "receipt_ack"; readonly callId: string; readonly grantId: string; readonly disposition: ReceiptDisposition }
  | { readonly kind: "update_answer"; readonly callId: string; readonly updateId: string; readonly disposition: UpdateDisposition }
  | { readonly kind: "chunk_answer"; readonly answer: ChunkAnswer }
  | { readonly kind: "ping"; readonly number: number; readonly acknowledged: number }
  | { readonly kind: "drain"; readonly reason: string; readonly deadlineMs: number }
  | { readonly kind: "credential_request"; readonly expiresInMs: number }
  | { readonly kind: "credential_accepted"; readonly expiresInMs: number }
  | { readonly kind: "protocol_fault"; readonly code: string; readonly message: string; readonly callId: string }
  | { readonly kind: "unknown" };

/** A frame about one grant or call. */
export type GrantMessage = Extract<
  BrokerMessage,
  { kind: "grant" | "cancel" | "revoke" | "reconcile" | "receipt_ack" | "update_answer" | "chunk_answer" }
>;

/** What a runner can say about its surroundings. */
export interface InstanceFacts {
  /** `unknown` for a worker or a process without a window. */
  readonly visibility: "visible" | "hidden" | "unknown";
  readonly focused: boolean;
  /** Free facts for operators, such as the platform. No secrets: they are shown. */
  readonly labels: Readonly<Record<string, string>>;
}
