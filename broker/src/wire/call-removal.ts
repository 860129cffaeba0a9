/**
 * Takes one settled call out of the ledger (L6).
 *
 * Invariants:
 * - Values go first, then entries, the oldest first: whatever the process dies between, the call is whole, or expired.
 * - A value is removed at the place that it had while the call's last entry was there. So a new call of the same id, and a value of the same name
 *   that it stored since, are never touched, however late this comes.
 */
import type { Leaving } from "../domain/call/retention.js";
import type { BlobPlace, Ledger, StoredEntry } from "../domain/ports/ledger.js";

/** All that is stored of the call. */
export async function entriesOf(ledger: Pick<Ledger, "read">, callId: string): Promise<readonly StoredEntry[]> {
  const entries: StoredEntry[] = [];
  for await (const stored of ledger.read(callId)) {
    entries.push(stored);
  }
  return entries;
}

/** Removes the call; resolves to how many values went with it. May be done again, and by several at once. */
export async function removeCall(
  ledger: Pick<Ledger, "read" | "remove" | "blobs">,
  callId: string,
  { blobs, versions }: Leaving,
): Promise<number> {
  const lying: BlobPlace[] = [];
  for (const name of blobs) {
    const place = await ledger.blobs.placeOf(name);
    if (place !== undefined) {
      lying.push({ name, place });
    }
  }
  let values = 0;
  if (lying.length > 0 && (await isThere(ledger, callId, versions.at(-1) ?? 0))) {
    for (const blob of lying) {
      values += (await ledger.blobs.remove(blob)) ? 1 : 0;
    }
  }
  await ledger.remove(callId, versions);
  return values;
}

async function isThere(ledger: Pick<Ledger, "read">, callId: string, version: number): Promise<boolean> {
  for await (const stored of ledger.read(callId, version)) {
    return stored.version === version;
  }
  return false;
}
