/**
 * Lanes on JetStream: one stream, one message for each call that stands in a lane, on the subject `<prefix>.lane.<lane>.<call id>`.
 *
 * The stream's sequence is the order, for all brokers alike. Invariants: a call joins only where its subject is empty, so a repeat
 * keeps its place; a member is removed by its subject up to its sequence, so a late removal never takes out who came after.
 */

import type { LaneStore } from "../../domain/ports/lanes.js";
import { LedgerError } from "../../domain/ports/ledger.js";
import { checkLaneNames } from "../lane-rules.js";
import { expectingHeaders } from "./entry-header.js";
import type { StreamNames } from "./names.js";
import type { ReaderContext } from "./ordered-reader.js";
import { WRONG_LAST_SEQUENCE } from "./requests.js";
import { getMessage } from "./stored-message.js";

/** Before a call whose place is taken and not to be seen asks again: it left meanwhile, or the server lags behind. */
const AGAIN_MS = 100;

/** All operations stay pending while JetStream is away, and reject with {@link LedgerError} `closed` or `misconfigured` only. */
export function createJetStreamLanes(
  { requests, clock, random }: Pick<ReaderContext, "requests" | "clock" | "random">,
  names: StreamNames,
): LaneStore {
  const moment = (): Promise<void> => new Promise((resolve) => clock.schedule(AGAIN_MS * (0.5 + random()), resolve));
  return {
    async join(lane, callId) {
      checkLaneNames(lane, callId);
      const subject = `${names.subjectPrefix}${lane}.${callId}`;
      for (;;) {
        const { answer } = await requests.publish(subject, "", expectingHeaders(0));
        if (answer.error?.err_code !== WRONG_LAST_SEQUENCE) return answer.seq as number;
        const present = await getMessage(requests, names.stream, { last_by_subj: subject });
        if (present !== undefined) return present.sequence;
        await moment();
      }
    },
    async first(lane) {
      checkLaneNames(lane);
      const head = await getMessage(requests, names.stream, { seq: 1, next_by_subj: `${names.subjectPrefix}${lane}.*` });
      if (head === undefined) return undefined;
      const callId = head.subject.slice(head.subject.lastIndexOf(".") + 1);
      if (callId === "")
        throw new LedgerError("misconfigured", `the stream ${names.stream} holds a message on ${head.subject}, which is no lane`);
      return { callId, place: head.sequence };
    },
    async leave(lane, { callId, place }) {
      checkLaneNames(lane, callId);
      // Up to and with its place, and of this call only: what came in its stead meanwhile stays, also where sequences began anew.
      const answer = await requests.ask(`$JS.API.STREAM.PURGE.${names.stream}`, {
        filter: `${names.subjectPrefix}${lane}.${callId}`,
        seq: place + 1,
      });
      if (answer.error !== undefined) {
        throw new LedgerError("misconfigured", `the stream ${names.stream} cannot be purged: ${answer.error.description}`);
      }
    },
  };
}
