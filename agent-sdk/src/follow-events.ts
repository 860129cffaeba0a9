/** A call's events across any number of streams. */

import type { RequestOptions } from "./client-types.js";
import type { Patience } from "./retry.js";
import type { AgentConnection, OperationAnswers, OperationRequest } from "./transport.js";
import { type CallEvent, isSettled } from "./types.js";

/** What to follow, and with what. */
export interface FollowOptions {
  readonly connection: AgentConnection;
  /** Sends with repeats. */
  readonly send: <Name extends "getCall" | "listCallEvents">(
    operation: Name,
    request: OperationRequest,
    options: RequestOptions,
  ) => Promise<OperationAnswers[Name]>;
  readonly id: string;
  readonly afterSeq: number;
  readonly signal: AbortSignal | undefined;
  readonly patience: Patience;
}

/** Events with a `seq` above `afterSeq`, each once and in order; ends after `settled`. */
export async function* followEvents(options: FollowOptions): AsyncGenerator<CallEvent, void> {
  const { connection, id, signal, patience } = options;
  let last = options.afterSeq;
  for (;;) {
    let failure: unknown;
    try {
      for await (const event of connection.watch(id, last, signal)) {
        // A stream that begins again may begin too early.
        if (event.seq <= last) continue;
        last = event.seq;
        patience.succeeded();
        yield event;
        if (event.event === "settled") return;
      }
    } catch (error) {
      failure = error;
    }
    if (failure !== undefined) await patience.afterFailure(failure, true);
    else if (await nothingLeft(options, last)) return;
    else await patience.afterNothing();
  }
}

/** A stream that ends without `settled` was cut short, unless the reader had asked for what comes after `settled`. */
async function nothingLeft({ send, id, signal }: FollowOptions, last: number): Promise<boolean> {
  const how = signal === undefined ? {} : { signal };
  if (!isSettled(await send("getCall", { params: { id } }, how))) return false;
  const rest = await send("listCallEvents", { params: { id }, query: { after_seq: last } }, how);
  return rest.data.length === 0;
}
