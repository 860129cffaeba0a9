/** Values over the inline limit become blobs, stored before the entry that names them (L7). */
import { createHash } from "node:crypto";
import type { StoredText } from "../domain/call/call-state.js";
import { type BlobStore, INLINE_VALUE_BYTES_MAX } from "../domain/ports/ledger.js";

/** The blob's name follows from what it holds: the same value stored again is the same blob. Small values stay as they are. */
export async function storedOnce(blobs: BlobStore, callId: string, text: StoredText & { readonly kind: "inline" }): Promise<StoredText> {
  if (text.bytes <= INLINE_VALUE_BYTES_MAX) {
    return text;
  }
  const name = `${callId}/blob_${createHash("sha256").update(text.json).digest("hex").slice(0, 40)}`;
  await blobs.put(name, text.json);
  return { kind: "blob", name, bytes: text.bytes };
}
