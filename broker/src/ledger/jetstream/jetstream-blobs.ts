/**
 * Large values beside the calls' stream (L7): parts and a manifest, each a message on a subject of its own.
 *
 * Invariants:
 * - The manifest is written after all parts are acknowledged, and names how many there are and the digest of the whole.
 * - `put` resolves after the stored value was read back and its digest was right.
 * - A put that was cut off leaves parts on the subjects that the next put of that name writes again: no rubbish without a name.
 * - The place of a value is its manifest's sequence. A put of a value that is there writes the manifest again, on top of the one that it
 *   read: so whoever removes the value at its old place finds that out, or the put does.
 */
import { createHash } from "node:crypto";
import { type BlobStore, LedgerError } from "../../domain/ports/ledger.js";
import { checkBlobName, isBlobName } from "../append-rules.js";
import { expectingHeaders } from "./entry-header.js";
import type { StreamNames } from "./names.js";
import { type ReaderContext, readToEnd } from "./ordered-reader.js";
import { WRONG_LAST_SEQUENCE } from "./requests.js";
import { deleteMessage, getMessage } from "./stored-message.js";

const PART_BYTES = 524_288;
const PARTS_AT_ONCE = 8;
const MANIFEST = "manifest";

interface Manifest {
  readonly digest: string;
  readonly parts: number;
  /** The lowest sequence of a part. */
  readonly from: number;
}

/** `signal` ends reads when the ledger closes. */
export function createJetStreamBlobs(context: ReaderContext, names: StreamNames, signal: AbortSignal): BlobStore {
  const { requests } = context;
  const prefixOf = (name: string): string => `${names.subjectPrefix}${name.replace("/", ".")}.`;

  const manifestOf = async (name: string): Promise<{ readonly sequence: number; readonly manifest: Manifest } | undefined> => {
    const found = await getMessage(requests, names.stream, { last_by_subj: prefixOf(name) + MANIFEST });
    return found === undefined ? undefined : { sequence: found.sequence, manifest: parseManifest(found.data.toString("utf8")) };
  };

  /** `undefined`: what is stored is not what the manifest says. */
  const readValue = async (name: string, manifest: Manifest): Promise<Buffer | undefined> => {
    const prefix = prefixOf(name);
    const parts = new Map<string, Uint8Array>();
    if (manifest.parts > 0) {
      for await (const { subject, data } of readToEnd(context, {
        stream: names.stream,
        filter: `${prefix}*`,
        from: manifest.from,
        signal,
      })) {
        const part = subject.slice(prefix.length);
        if (part !== MANIFEST) parts.set(part, data);
        if (parts.size === manifest.parts && part === MANIFEST) break;
      }
    }
    const value = Buffer.concat(Array.from({ length: manifest.parts }, (_, index) => parts.get(String(index)) ?? new Uint8Array()));
    return digestOf(value) === manifest.digest ? value : undefined;
  };

  const publishParts = async (name: string, value: Buffer): Promise<{ parts: number; from: number }> => {
    const parts = Math.ceil(value.length / PART_BYTES);
    let from = Number.MAX_SAFE_INTEGER;
    for (let first = 0; first < parts; first += PARTS_AT_ONCE) {
      const group = Array.from({ length: Math.min(PARTS_AT_ONCE, parts - first) }, async (_, offset) => {
        const index = first + offset;
        const { answer } = await requests.publish(
          `${prefixOf(name)}${index}`,
          value.subarray(index * PART_BYTES, (index + 1) * PART_BYTES),
        );
        return answer.seq as number;
      });
      from = Math.min(from, ...(await Promise.all(group)));
    }
    return { parts, from: parts === 0 ? 1 : from };
  };

  /** False: another one was there, by an earlier attempt, another put or a removal: what counts is what is there. */
  const putManifest = async (name: string, manifest: Manifest, expected: number): Promise<boolean> => {
    const { answer } = await requests.publish(prefixOf(name) + MANIFEST, JSON.stringify(manifest), expectingHeaders(expected));
    return answer.error?.err_code !== WRONG_LAST_SEQUENCE;
  };

  return {
    put: async (name, text) => {
      checkBlobName(name);
      const value = Buffer.from(text, "utf8");
      const digest = digestOf(value);
      for (;;) {
        const stored = await manifestOf(name);
        if (stored !== undefined && (await readValue(name, stored.manifest)) !== undefined) {
          if (stored.manifest.digest !== digest) {
            throw new TypeError(`blob ${name} is stored already with another text: a name is written once`);
          }
          if (await putManifest(name, stored.manifest, stored.sequence)) return;
          continue;
        }
        const manifest: Manifest = { digest, ...(await publishParts(name, value)) };
        if ((await putManifest(name, manifest, stored?.sequence ?? 0)) && (await readValue(name, manifest)) !== undefined) return;
      }
    },
    get: async (name) => {
      const stored = isBlobName(name) ? await manifestOf(name) : undefined;
      if (stored === undefined) throw new LedgerError("blob_missing", `blob ${name.slice(0, 200)} is not stored`);
      const value = await readValue(name, stored.manifest);
      if (value === undefined) {
        throw new LedgerError("blob_corrupt", `blob ${name} does not match its digest: restore it from a backup`);
      }
      return value.toString("utf8");
    },
    places: async function* (from, asked) {
      const options = { stream: names.stream, filter: names.subjects, from, headersOnly: true, signal: AbortSignal.any([asked, signal]) };
      for await (const { subject, sequence } of readToEnd(context, options)) {
        const [callId, entryId] = subject.slice(names.subjectPrefix.length).split(".");
        const name = `${callId}/${entryId}`;
        if (isBlobName(name)) yield { name, place: sequence };
      }
    },
    placeOf: async (name) => (isBlobName(name) ? (await manifestOf(name))?.sequence : undefined),
    remove: async ({ name, place }) => {
      checkBlobName(name);
      const stored = await manifestOf(name);
      if (stored !== undefined) {
        if (stored.sequence > place) return false;
        await deleteMessage(context, names.stream, stored.sequence);
        // Put again in between, it has another one, which names the same parts.
        if ((await manifestOf(name)) !== undefined) return false;
      }
      let found = stored !== undefined;
      const parts = { stream: names.stream, filter: `${prefixOf(name)}*`, from: 1, headersOnly: true, signal };
      for await (const { sequence } of readToEnd(context, parts)) {
        if (sequence > place) continue;
        await deleteMessage(context, names.stream, sequence);
        found = true;
      }
      return found;
    },
  };
}

/** What is no manifest promises a digest that no value has. */
function parseManifest(text: string): Manifest {
  try {
    const { digest, parts, from } = JSON.parse(text) as Partial<Manifest>;
    if (typeof digest === "string" && Number.isSafeInteger(parts) && Number.isSafeInteger(from)) {
      return { digest, parts: parts ?? 0, from: from ?? 1 };
    }
  } catch {
    // Not JSON: as corrupt as any other text.
  }
  return { digest: "", parts: 0, from: 1 };
}

function digestOf(value: Buffer): string {
  return createHash("sha256").update(value).digest("base64url");
}
