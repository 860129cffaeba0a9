/** One stored message, asked for from the leader of its stream. */
import { headers, type MsgHdrs, type NatsConnection } from "@nats-io/nats-core";
import { LedgerError } from "../../domain/ports/ledger.js";
import { compareVersions } from "./connection-watch.js";
import { type ApiAnswer, DELETE_FAILED, NO_MESSAGE_FOUND, type Requests } from "./requests.js";

export interface StoredMessage {
  readonly subject: string;
  readonly sequence: number;
  readonly headers: MsgHdrs | undefined;
  readonly data: Buffer;
  /** Unix milliseconds by the server's clock. */
  readonly storedAtMs: number;
}

/** By sequence, the last of a subject, or the first of a subject from a sequence on. */
export type MessageQuery =
  | { readonly seq: number }
  | { readonly last_by_subj: string }
  | { readonly seq: number; readonly next_by_subj: string };

/** The server from which on a deletion writes a record of its own. */
const KEEPS_DELETIONS = "2.10.0";

/** Over which connection a message is removed. */
export interface Deleter {
  readonly requests: Requests;
  readonly connection: Pick<NatsConnection, "info">;
}

/** `undefined` when there is none. Rejects with {@link LedgerError} `misconfigured` when the stream is gone. */
export async function getMessage(requests: Requests, stream: string, query: MessageQuery): Promise<StoredMessage | undefined> {
  const answer = await requests.ask(`$JS.API.STREAM.MSG.GET.${stream}`, query);
  if (answer.error?.err_code === NO_MESSAGE_FOUND) return undefined;
  checkAnswer(stream, answer);
  const {
    subject,
    seq,
    hdrs,
    data = "",
    time,
  } = answer.message as { subject: string; seq: number; hdrs?: string; data?: string; time: string };
  return { subject, sequence: seq, headers: decodeHeaders(hdrs), data: Buffer.from(data, "base64"), storedAtMs: Date.parse(time) };
}

/**
 * Removes the message of that sequence; one that is gone already is as good. It is not overwritten on disk, which is quicker (L6), but on
 * nats-server 2.9: there a deletion without that is forgotten when the server is killed.
 */
export async function deleteMessage({ requests, connection }: Deleter, stream: string, sequence: number): Promise<void> {
  const no_erase = compareVersions(connection.info?.version ?? "", KEEPS_DELETIONS) >= 0;
  const answer = await requests.ask(`$JS.API.STREAM.MSG.DELETE.${stream}`, { seq: sequence, no_erase });
  if (answer.error === undefined || answer.error.code === 404 || answer.error.code === 400) return;
  // nats-server calls an absent message a failure of its own, like a disk that does not work.
  if (answer.error.err_code === DELETE_FAILED && (await getMessage(requests, stream, { seq: sequence })) === undefined) return;
  throw new LedgerError(
    "unreachable",
    `message ${sequence} of ${stream} cannot be removed: ${answer.error.description ?? "no reason given"}`,
  );
}

/** The stream's last sequence, as its leader knows it. Rejects with {@link LedgerError} `misconfigured` when the stream is gone. */
export async function lastSequence(requests: Requests, stream: string): Promise<number> {
  return (await streamState(requests, stream)).last_seq ?? 0;
}

/** The sequence of the stream's newest message, or a higher one that it once had; 0 when it holds none. Rejects like {@link lastSequence}. */
export async function newestSequence(requests: Requests, stream: string): Promise<number> {
  const { last_seq = 0, messages } = await streamState(requests, stream);
  return messages === 0 ? 0 : last_seq;
}

interface StreamState {
  readonly last_seq?: number;
  readonly messages?: number;
}

async function streamState(requests: Requests, stream: string): Promise<StreamState> {
  const answer = await requests.ask(`$JS.API.STREAM.INFO.${stream}`);
  checkAnswer(stream, answer);
  return (answer.state as StreamState | undefined) ?? {};
}

function checkAnswer(stream: string, { error }: ApiAnswer): void {
  if (error === undefined) return;
  throw new LedgerError(
    "misconfigured",
    `the stream ${stream} cannot be read: ${error.err_code ?? error.code} ${error.description}. Was it removed or renamed?`,
  );
}

/** Headers as the API for stored messages gives them: base64 of their text. `undefined` when there are none. */
export function decodeHeaders(base64: string | undefined): MsgHdrs | undefined {
  if (base64 === undefined) return undefined;
  const all = headers();
  for (const line of Buffer.from(base64, "base64").toString("utf8").split("\r\n").slice(1)) {
    const colon = line.indexOf(":");
    if (colon > 0) all.append(line.slice(0, colon), line.slice(colon + 1).trim());
  }
  return all;
}
