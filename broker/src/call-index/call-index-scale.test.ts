import { spawn } from "node:child_process";
import { statSync } from "node:fs";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { fileURLToPath } from "node:url";
import * as fc from "fast-check";
import { afterEach, describe, expect, it } from "vitest";
import type { CallEntry } from "../domain/call/entries.js";
import { encodeEntry } from "../domain/call/entry-codec.js";
import { noteOf } from "../domain/call/entry-note.js";
import { CALL_STATES, type CallFilter } from "../domain/call-view.js";
import type { Log } from "../domain/ports/log.js";
import { createMemoryLedger, createMemoryLedgerStore } from "../ledger/memory/memory-ledger.js";
import { anyWalk, walk } from "../testing/arbitrary-call.js";
import { type CallIndex, createCallIndex } from "./call-index.js";
import { generatedLedger, RUNNING_SHARE } from "./testing/generated-ledger.js";
import { indexFile, listed, tidy } from "./testing/index-scene.js";

afterEach(tidy);

const silent: Log = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };

describe("the call index, for any calls in any order", () => {
  it("lists each call under the state that the machine gives it, whatever was restarted, forgotten and interleaved meanwhile", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(anyWalk, { minLength: 1, maxLength: 5 }), fc.infiniteStream(fc.nat({ max: 9 })), async (seeds, choices) => {
        const choose = (among: number): number => (choices.next().value ?? 0) % among;
        const ledger = createMemoryLedger({ store: createMemoryLedgerStore() });
        const file = indexFile();
        const start = async (): Promise<CallIndex> => {
          const started = createCallIndex({ ledger, file, log: silent, callsInMemoryMax: choose(3), catchUpWaitMs: 10_000 });
          await started.start();
          return started;
        };
        const calls = seeds.map((seed, call) => {
          const steps = walk(seed);
          return { callId: `call_${call}`, steps, next: 0, version: 0, opened: 0, state: steps.at(-1)?.after.kind ?? "requested" };
        });
        let index = await start();
        let end = 0;
        for (let open = calls; open.length > 0; open = calls.filter(({ next, steps }) => next < steps.length)) {
          const call = open[choose(open.length)];
          const step = call?.steps[call.next];
          if (call === undefined || step === undefined) {
            throw new Error("chose a call that has ended");
          }
          const { entryId, version: _version, ...written } = step.entry;
          // The walk's request is the sample's, whose id is not the call's.
          const entry = (
            written.kind === "accepted" ? { ...written, request: { ...written.request, callId: call.callId } } : written
          ) as CallEntry;
          // Brokers that leave notes and brokers that do not, in any order.
          const note = step.edge === undefined || choose(3) === 0 ? undefined : noteOf(step.edge, entry);
          const outcome = await ledger.append(call.callId, call.version, { entryId, data: encodeEntry(entry), mark: "none", note });
          if (outcome.kind !== "appended") {
            throw new Error("the append was a conflict");
          }
          call.next += 1;
          call.version = outcome.version;
          call.opened ||= step.before.kind === "requested" && step.edge !== undefined ? outcome.version : 0;
          end = outcome.version;
          if (choose(10) === 0) {
            await index.stop();
            index = await start();
          }
        }
        try {
          const accepted = calls.filter(({ opened }) => opened > 0).sort((a, b) => b.opened - a.opened);
          expect(await listed(index, {}, end)).toEqual(accepted.map(({ callId }) => callId));
          for (const state of CALL_STATES) {
            const expected = accepted.filter((call) => call.state === state).map(({ callId }) => callId);
            expect(await listed(index, { state }, end), state).toEqual(expected);
          }
        } finally {
          await index.stop();
          await ledger.close();
        }
      }),
      { numRuns: 40 },
    );
  }, 120_000);
});

describe("the call index at scale", () => {
  it("goes on after it was killed in the middle of writing, as if nothing had been", async () => {
    const calls = 60_000;
    const file = indexFile();
    const child = fileURLToPath(new URL("./testing/follow-until-killed.js", import.meta.url));
    for (const afterMs of [0, 30, 90]) {
      const process_ = spawn(process.execPath, [child, file, String(calls)], { stdio: ["ignore", "pipe", "inherit"] });
      const said: string[] = [];
      const ended = new Promise<void>((resolve) => process_.once("exit", () => resolve()));
      for await (const chunk of process_.stdout) {
        said.push(String(chunk));
        if (said.join("").includes("following")) {
          setTimeout(() => process_.kill("SIGKILL"), afterMs);
          break;
        }
      }
      await ended;
      // A file that came through is neither broken nor taken for another ledger's.
      expect(said.join("")).not.toMatch(/call_index_/);
    }
    const events: string[] = [];
    const hear = (event: string): void => void events.push(event);
    const index = createCallIndex({
      ledger: generatedLedger(calls),
      file,
      log: { debug: hear, info: hear, warn: hear, error: hear },
      catchUpWaitMs: 60_000,
    });
    await index.start();
    try {
      expect(await listed(index, { state: "running" }, 2 * calls)).toHaveLength(calls / RUNNING_SHARE);
      const all = await listed(index, {}, 2 * calls);
      expect(all).toEqual(Array.from({ length: calls }, (_, call) => `call_${calls - 1 - call}`));
      expect(events).toEqual([]);
    } finally {
      await index.stop();
    }
  }, 120_000);

  it("follows many calls (300,000 with TOOLRUNNER_LONG=1), and lists any of them in milliseconds; prints its speed", async () => {
    const calls = process.env.TOOLRUNNER_LONG === "1" ? 300_000 : 30_000;
    const perSubject = calls / 1_000;
    const perSession = calls / 5_000;
    const file = indexFile();
    const stalls = monitorEventLoopDelay({ resolution: 5 });
    const index = createCallIndex({ ledger: generatedLedger(calls), file, log: silent, catchUpWaitMs: 100_000 });
    const begun = performance.now();
    stalls.enable();
    await index.start();
    await index.list("default", {}, { limit: 1 }, { atLeast: 2 * calls });
    const seconds = (performance.now() - begun) / 1_000;
    stalls.disable();
    try {
      const timings: string[] = [];
      const filters: [string, CallFilter, number][] = [
        ["all", {}, 100],
        ["state running", { state: "running" }, 100],
        ["state queued (none)", { state: "queued" }, 0],
        ["a subject", { subject: "user_7" }, perSubject],
        ["a session", { session: "chat_7" }, perSession],
        ["a session and a state", { session: "chat_10", state: "running" }, perSession],
        ["tool and open state", { tool: "tool_1", state: "queued" }, 0],
        ["tool and settled state that it never has", { tool: "tool_0", state: "succeeded" }, 0],
      ];
      for (const [name, filter, expected] of filters) {
        const from = performance.now();
        const { data } = await index.list("default", filter, { limit: 100 });
        const ms = performance.now() - from;
        expect(data, name).toHaveLength(Math.min(expected, 100));
        timings.push(`${name} ${ms.toFixed(1)} ms`);
        expect(ms, name).toBeLessThan(1_000);
      }
      const neverTimedOut = await index.list("default", { binding: "shop", toolset: "shop", state: "timed_out" }, {});
      expect(neverTimedOut).toEqual({ data: [], next_page: null });
      let pages = 0;
      for (let page: string | undefined; pages === 0 || page !== undefined; pages += 1) {
        const found = await index.list("default", { tool: "tool_0", state: "succeeded" }, { page });
        expect(found.data).toEqual([]);
        page = found.next_page ?? undefined;
      }
      // Nothing matches, although both are everywhere, and no listing looked at more than 10,240 of the ledger's versions to say so.
      expect(pages).toBe(Math.ceil((2 * calls) / 10_240));
      expect(await listed(index, { tool: "tool_7", subject: "user_7", session: "chat_7", state: "succeeded" }, 0)).toHaveLength(perSession);
      process.stdout.write(
        `call index: ${Math.round(calls / seconds)} calls/s (${calls} in ${seconds.toFixed(1)} s), longest stall ${(stalls.max / 1e6).toFixed(0)} ms, ` +
          `file ${(statSync(file).size / 1e6).toFixed(0)} MB; ${timings.join(", ")}\n`,
      );
    } finally {
      await index.stop();
    }
  }, 180_000);
});
