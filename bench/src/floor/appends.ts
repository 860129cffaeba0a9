/** Durable appends without a ledger's rules. */

export interface Appends {
  /** Resolves with the entry's version when it is as durable as the product's. `expected`: version of the call's newest entry, 0 for none. */
  append(callId: string, expected: number, data: Buffer): Promise<number>;
  close(): Promise<void>;
}
