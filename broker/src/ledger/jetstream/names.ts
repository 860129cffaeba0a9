/** Names of the ledger's streams and subjects below one prefix. */

export interface Names {
  readonly calls: StreamNames;
  readonly index: StreamNames;
  readonly blobs: StreamNames;
  readonly lanes: StreamNames;
}

export interface StreamNames {
  readonly stream: string;
  /** Ends in a dot. */
  readonly subjectPrefix: string;
  readonly subjects: string;
}

const TOKEN = /^[A-Za-z0-9_-]{1,32}$/;
const INCARNATION = /^[A-Za-z0-9_-]{1,64}$/;

/** Throws `TypeError` for a prefix that is not 1 to 32 characters of `[A-Za-z0-9_-]`. */
export function namesOf(prefix: string): Names {
  if (!TOKEN.test(prefix)) throw new TypeError(`"${prefix}" is not a prefix: 1 to 32 characters of [A-Za-z0-9_-]`);
  return {
    calls: { stream: `${prefix}_calls`, subjectPrefix: `${prefix}.call.`, subjects: `${prefix}.call.*` },
    index: { stream: `${prefix}_index`, subjectPrefix: `${prefix}.index.`, subjects: `${prefix}.index.>` },
    blobs: { stream: `${prefix}_blobs`, subjectPrefix: `${prefix}.blob.`, subjects: `${prefix}.blob.*.*.*` },
    lanes: { stream: `${prefix}_lanes`, subjectPrefix: `${prefix}.lane.`, subjects: `${prefix}.lane.*.*` },
  };
}

/** Throws `TypeError` for an incarnation that is not 1 to 64 characters of `[A-Za-z0-9_-]`. */
export function checkIncarnation(incarnation: string): void {
  if (!INCARNATION.test(incarnation)) throw new TypeError(`"${incarnation}" is not an incarnation: 1 to 64 characters of [A-Za-z0-9_-]`);
}
