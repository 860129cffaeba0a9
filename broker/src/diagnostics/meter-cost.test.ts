/** What metrics cost a call: measured as processor time, the best of several rounds, since other processes share the machine. */
import { expect, it } from "vitest";
import type { CallState } from "../domain/call/call-state.js";
import type { CallEntry } from "../domain/call/entries.js";
import { type Transition, transition } from "../domain/call/transition.js";
import { acceptedEntry, placed, receiptEntry, receiptFacts, SAMPLE_START_MS, sampleHolder, sampleRequest } from "../testing/sample-call.js";
import { createMetrics } from "./metrics.js";

/** The aim for all observations of one call on the fast path together. */
const CALL_MICROSECONDS_MAX = 3;
const CALLS = 20_000;
const ROUNDS = 8;

it(`all observations of a call on the fast path take less than ${CALL_MICROSECONDS_MAX} µs of processor time (D5)`, () => {
  const metrics = createMetrics({ version: "1", ledger: "memory", errorCodes: [], closeReasons: {} });
  const { meter } = metrics;
  const fastPath: CallEntry[] = [
    acceptedEntry(sampleRequest(), { grant: { attempt: 1, holder: sampleHolder() } }),
    receiptEntry(receiptFacts("entry_1", { startedAtMs: SAMPLE_START_MS + 5 })),
  ];
  const steps: { readonly before: CallState; readonly entry: ReturnType<typeof placed>[number]; readonly moved: Transition }[] = [];
  for (const entry of placed(fastPath)) {
    const before = steps.at(-1)?.moved.state ?? { kind: "requested" };
    const moved = transition(before, entry);
    if (moved.kind === "rejected") throw new Error(moved.reason);
    steps.push({ before, entry, moved });
  }
  const earlier = steps[0]?.moved.events ?? [];

  function call(): void {
    for (const { before, entry, moved } of steps) {
      meter.appendBegan();
      meter.entryStored(before, entry, moved.state, moved.events, earlier);
      meter.appendEnded("stored", 0.7);
    }
    meter.frameSent("websocket_binary", "grant");
    meter.frameReceived("websocket_binary", "started");
    meter.frameReceived("websocket_binary", "receipt");
    meter.frameSent("websocket_binary", "receiptAck");
    meter.httpRequest("POST", "/v1/calls", 200, 3.2);
  }

  let best = Number.POSITIVE_INFINITY;
  for (let round = 0; round < ROUNDS; round += 1) {
    const { user: userBefore, system: systemBefore } = process.cpuUsage();
    for (let index = 0; index < CALLS; index += 1) call();
    const { user, system } = process.cpuUsage({ user: userBefore, system: systemBefore });
    best = Math.min(best, (user + system) / CALLS);
  }
  metrics.stop();
  console.info(`metrics: ${best.toFixed(2)} µs of processor time a call`);
  expect(best).toBeLessThan(CALL_MICROSECONDS_MAX);
});
