/** SHA-256 by Node, which answers at once: a receipt waits for no turn of the event loop, and no block is hashed in JavaScript. */
import { hash } from "node:crypto";

/** SHA-256 of the UTF-8 bytes of `text`, 64 hexadecimal digits. */
export function sha256OfNode(text: string): string {
  return hash("sha256", text);
}
