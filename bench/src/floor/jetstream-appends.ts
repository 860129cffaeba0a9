/**
 * Appends to JetStream: one subject for each call, compared with the subject's last sequence, one subscription for all answers.
 *
 * An entry carries an id of the product's length in a header of its own. `Nats-Msg-Id` would make the server keep every id for a
 * window of time, which the product does not ask of it: a floor that did would be too high.
 */
import { jetstreamManager } from "@nats-io/jetstream";
import { createInbox, headers } from "@nats-io/nats-core";
import { connect } from "@nats-io/transport-node";
import type { Appends } from "./appends.js";

/** Name of the stream. */
export const FLOOR_STREAM = "floor_calls";

const ENTRY_ID = "entry_abcdefghijklmnopqrstuvwxyz - call_abcdefghijklmnopqrstuvwxyz";

interface Acknowledgement {
  readonly seq?: number;
  readonly error?: { readonly description?: string };
}

export async function openJetStreamAppends(url: string): Promise<Appends> {
  const connection = await connect({ servers: url, noAsyncTraces: true });
  const manager = await jetstreamManager(connection);
  await manager.streams.add({ name: FLOOR_STREAM, subjects: ["floor.call.*"], storage: "file" });
  const inbox = `${createInbox()}.`;
  const pending = new Map<string, { resolve(version: number): void; reject(error: Error): void }>();
  connection.subscribe(`${inbox}*`, {
    callback: (error, message) => {
      if (error !== null) throw error;
      const token = message.subject.slice(inbox.length);
      const waiting = pending.get(token);
      pending.delete(token);
      const { seq, error: refusal } = message.json<Acknowledgement>();
      if (seq === undefined) waiting?.reject(new Error(`JetStream refused an append: ${refusal?.description ?? "no reason"}`));
      else waiting?.resolve(seq);
    },
  });
  let last = 0;
  return {
    append(callId, expected, data) {
      last += 1;
      const token = last.toString(36);
      const all = headers();
      all.append("Nats-Expected-Last-Subject-Sequence", String(expected));
      all.append("Floor-Entry", ENTRY_ID);
      return new Promise((resolve, reject) => {
        pending.set(token, { resolve, reject });
        connection.publish(`floor.call.${callId}`, data, { headers: all, reply: inbox + token });
      });
    },
    close: () => connection.close(),
  };
}
