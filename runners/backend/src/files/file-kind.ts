/**
 * Tells text from what `read` does not show, from the first bytes of a file and its name.
 */
import path from "node:path";

/** How many leading bytes are looked at. */
export const SNIFF_BYTES = 8192;

/** `text`, `binary` (a NUL early on), or a kind with a name of its own that `read` does not show yet. */
export type FileKind = "text" | "binary" | { readonly named: string };

const SIGNATURES: readonly { readonly named: string; readonly bytes: readonly number[]; readonly at: number }[] = [
  { named: "PNG image", at: 0, bytes: [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a] },
  { named: "JPEG image", at: 0, bytes: [0xff, 0xd8, 0xff] },
  { named: "GIF image", at: 0, bytes: [0x47, 0x49, 0x46, 0x38] },
  { named: "WebP image", at: 8, bytes: [0x57, 0x45, 0x42, 0x50] },
  { named: "PDF document", at: 0, bytes: [0x25, 0x50, 0x44, 0x46, 0x2d] },
  { named: "UTF-16 text file", at: 0, bytes: [0xff, 0xfe] },
  { named: "UTF-16 text file", at: 0, bytes: [0xfe, 0xff] },
];

/**
 * The kind of a file.
 * @param name its name; only `.ipynb` matters
 * @param head its first bytes, `SNIFF_BYTES` at most
 */
export function fileKindOf(name: string, head: Uint8Array): FileKind {
  for (const { named, bytes, at } of SIGNATURES) {
    if (bytes.every((byte, index) => head[at + index] === byte)) return { named };
  }
  if (path.extname(name).toLowerCase() === ".ipynb") return { named: "notebook" };
  return head.includes(0) ? "binary" : "text";
}
