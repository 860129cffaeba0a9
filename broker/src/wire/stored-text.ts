/** Values over the inline limit become blobs, stored before the entry that names them (L7). */
import type { StoredText } from "../domain/call/call-state.js";
import type { IdSource } from "../domain/ports/clock.js";
import { type BlobStore, INLINE_VALUE_BYTES_MAX } from "../domain/ports/ledger.js";

export async function storeText(blobs: BlobStore, ids: IdSource, callId: string, text: StoredText): Promise<StoredText> {
  if (text.kind === "blob" || text.bytes <= INLINE_VALUE_BYTES_MAX) {
    return text;
  }
  const name = `${callId}/${ids.next("blob")}`;
  await blobs.put(name, text.json);
  return { kind: "blob", name, bytes: text.bytes };
}
