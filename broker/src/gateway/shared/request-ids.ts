/** Ids that tie an answer to a log line. They are never secret and never stored. */

import { randomBytes } from "node:crypto";

const ALPHABET = "abcdefghijklmnopqrstuvwxyz234567";

/** Makes ids `req_` and 26 characters: 17 at random for each source, then a counter. */
export function createRequestIds(): () => string {
  const source = [...randomBytes(17)].map((byte) => ALPHABET[byte & 31]).join("");
  let count = 0;
  return () => {
    count += 1;
    let rest = count;
    let digits = "";
    for (let place = 0; place < 9; place += 1) {
      digits = ALPHABET[rest % 32] + digits;
      rest = Math.floor(rest / 32);
    }
    return `req_${source}${digits}`;
  };
}
