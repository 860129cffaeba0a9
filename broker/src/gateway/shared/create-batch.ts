/**
 * `POST /v1/calls:batch`: up to 64 creations in one request, answered together and in order (X11).
 *
 * Invariants: each call is created, refused and repeated as if it had come alone; a bad or slow one neither fails nor delays the
 * others beyond their share of the places; calls with the same ordering key are created in the order of the list; no wait
 * begins before every call is stored or refused; a call that was accepted is answered as a call, whatever becomes of its wait.
 */

import { answersTurn, type CallView } from "../../domain/call-view.js";
import { BATCH_CREATIONS_AT_ONCE } from "../../domain/limits.js";
import type { AgentPrincipal } from "../../domain/ports/access.js";
import type { CallOperations, CreateCallBody, WaitSignal } from "../../wire/operations.js";
import { BATCH_CALL, type BatchBody } from "./forms.js";

/** A call, or why there is none. */
export type BatchAnswer =
  | { readonly kind: "call"; readonly view: CallView }
  /** Whatever was thrown: see `fault.ts`. */
  | { readonly kind: "refused"; readonly error: unknown };

/** How a batch is carried out. */
export interface BatchContext {
  /** What a call of the list is in the names of HTTP; it may throw. */
  readonly read: (item: unknown) => unknown;
  readonly traceparent: string | undefined;
  /** Monotonic milliseconds. */
  readonly now: () => number;
}

/** Creates all calls, then waits for them together. Never rejects. */
export async function createBatch(
  calls: Pick<CallOperations, "create" | "get">,
  principal: AgentPrincipal,
  body: BatchBody,
  context: BatchContext,
  signal: WaitSignal,
): Promise<readonly BatchAnswer[]> {
  const endsAt = context.now() + (body.wait_seconds ?? 0) * 1_000;
  const answers = await inParallel(lanesOf(body.calls, context), (item) => created(calls, principal, item, context.traceparent));
  const leftSeconds = () => Math.max(0, endsAt - context.now()) / 1_000;
  return Promise.all(
    answers.map(async (answer) => {
      if (answer.kind === "refused" || answersTurn(answer.view.state) || leftSeconds() <= 0) return answer;
      try {
        return { kind: "call", view: await calls.get(principal, answer.view.id, { wait_seconds: leftSeconds(), signal }) };
      } catch {
        // It is stored: that its news cannot be had right now is no reason to call it refused.
        return answer;
      }
    }),
  );
}

/** One call of the list, as far as it could be read. */
type Item = { readonly index: number } & ({ readonly body: CreateCallBody } | { readonly error: unknown });

/** Calls that have to be created one after the other, in their order. */
function lanesOf(list: readonly unknown[], { read }: BatchContext): readonly (readonly Item[])[] {
  const lanes = new Map<string | number, Item[]>();
  list.forEach((raw, index) => {
    const item = itemOf(raw, index, read);
    const lane = "body" in item ? (item.body.ordering_key ?? index) : index;
    const items = lanes.get(lane);
    if (items === undefined) lanes.set(lane, [item]);
    else items.push(item);
  });
  return [...lanes.values()];
}

function itemOf(raw: unknown, index: number, read: (item: unknown) => unknown): Item {
  try {
    return { index, body: BATCH_CALL.check(read(raw)) };
  } catch (error) {
    return { index, error };
  }
}

async function created(
  calls: Pick<CallOperations, "create">,
  principal: AgentPrincipal,
  item: Item,
  traceparent: string | undefined,
): Promise<BatchAnswer> {
  if (!("body" in item)) return { kind: "refused", error: item.error };
  try {
    return { kind: "call", view: await calls.create(principal, item.body, { traceparent }) };
  } catch (error) {
    return { kind: "refused", error };
  }
}

/** Works on at most {@link BATCH_CREATIONS_AT_ONCE} lanes at once; the answers are in the order of the list. */
async function inParallel(lanes: readonly (readonly Item[])[], work: (item: Item) => Promise<BatchAnswer>): Promise<BatchAnswer[]> {
  const answers: BatchAnswer[] = [];
  const waiting = lanes[Symbol.iterator]();
  const place = async (): Promise<void> => {
    // All places take from one iterator.
    for (const lane of { [Symbol.iterator]: () => waiting }) {
      for (const item of lane) answers[item.index] = await work(item);
    }
  };
  await Promise.all(Array.from({ length: Math.min(BATCH_CREATIONS_AT_ONCE, lanes.length) }, place));
  return answers;
}
