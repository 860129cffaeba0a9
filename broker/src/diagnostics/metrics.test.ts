import fc from "fast-check";
import { afterEach, describe, expect, it } from "vitest";
import type { CallState } from "../domain/call/call-state.js";
import type { CallEntry } from "../domain/call/entries.js";
import { type CallEvent, transition } from "../domain/call/transition.js";
import type { Readings } from "../domain/ports/meter.js";
import { acceptedEntry, placed, receiptEntry, receiptFacts, SAMPLE_START_MS, sampleHolder, sampleRequest } from "../testing/sample-call.js";
import { METRICS } from "./definitions.js";
import { createMetrics, type Metrics } from "./metrics.js";
import { type ParsedMetrics, parseMetrics } from "./testing/parse-metrics.js";
import { TOOLS_MAX } from "./tool-tallies.js";

const started: Metrics[] = [];
afterEach(() => {
  for (const metrics of started.splice(0)) metrics.stop();
});

function newMetrics(): Metrics {
  const metrics = createMetrics({
    version: "1.2.3",
    ledger: "memory",
    errorCodes: ["call_timed_out", "call_cancelled", "attempts_exhausted"],
    closeReasons: { 1000: "normal", 4409: "superseded" },
  });
  started.push(metrics);
  return metrics;
}

async function scrape(metrics: Metrics, application = "default"): Promise<ParsedMetrics> {
  return parseMetrics((await metrics.read(application)).text);
}

/** Tells the meter what a broker would that stored these entries. */
function store({ meter }: Metrics, ...entries: readonly CallEntry[]): void {
  let state: CallState = { kind: "requested" };
  const told: CallEvent[] = [];
  for (const entry of placed(entries)) {
    const moved = transition(state, entry);
    if (moved.kind === "rejected") throw new Error(moved.reason);
    meter.entryStored(state, entry, moved.state, moved.events, told);
    state = moved.state;
    told.push(...moved.events);
  }
}

const at = (ms: number): number => SAMPLE_START_MS + ms;
const granted = (attempt: number, ms: number): CallEntry => ({
  kind: "granted",
  at: at(ms),
  driver: "broker_a",
  grant: { attempt, holder: sampleHolder() },
});
const SHOP = { toolset: "shop", tool: "refund" };

const NOTHING: Readings = {
  openCalls: [],
  sessions: [],
  liveBrokers: 1,
  ledgerSilentMs: 250,
  ledgerAway: false,
  newestVersion: 0,
};

describe("the metrics of a broker (D5)", () => {
  it("show every metric with its type and help before anything has happened, and no other", async () => {
    const { metrics } = await scrape(newMetrics());
    const shown = [...metrics.values()].map(({ name, type, help }) => ({ name, type, help }));
    expect(shown).toEqual(Object.values(METRICS).map(({ name, type, help }) => ({ name, type, help })));
  });

  it("have names that say their unit, as Prometheus has it", () => {
    for (const { name, type, labels } of Object.values(METRICS)) {
      expect(name).toMatch(/^(?:toolrunner|process|nodejs)_[a-z0-9_]+$/);
      expect(name.endsWith("_total"), name).toBe(type === "counter");
      if (type === "histogram") expect(name).toMatch(/_seconds$/);
      expect(labels).not.toContain("le");
    }
  });

  it("count a call that succeeds: accepted, granted, settled, with its times", async () => {
    const metrics = newMetrics();
    const first = acceptedEntry(sampleRequest());
    const receipt = receiptEntry(receiptFacts("entry_2", { startedAtMs: at(2_500) }), { at: at(4_000) });
    store(metrics, first, granted(1, 2_000), receipt);
    const shown = await scrape(metrics);
    expect(shown.sum("toolrunner_calls_accepted_total", SHOP)).toBe(1);
    expect(shown.sum("toolrunner_attempts_total", SHOP)).toBe(1);
    expect(shown.sum("toolrunner_calls_settled_total", { ...SHOP, state: "succeeded" })).toBe(1);
    expect(shown.sum("toolrunner_calls_settled_total")).toBe(1);
    expect(shown.sum("toolrunner_call_wait_seconds_sum", SHOP)).toBe(2.5);
    expect(shown.sum("toolrunner_call_run_seconds_sum", SHOP)).toBe(1.5);
    expect(shown.sum("toolrunner_call_total_seconds_sum", SHOP)).toBe(4);
    for (const part of ["wait", "run", "total"]) expect(shown.sum(`toolrunner_call_${part}_seconds_count`)).toBe(1);
    expect(shown.sum("toolrunner_call_run_seconds_bucket", { le: "1" })).toBe(0);
    expect(shown.sum("toolrunner_call_run_seconds_bucket", { le: "2.5" })).toBe(1);
  });

  it("believe a runner's clock only between the grant and the receipt", async () => {
    for (const [startedAtMs, waited, ran] of [
      [at(-3_600_000), 2, 2],
      [at(3_600_000), 4, 0],
      [null, 0, 2],
    ] as const) {
      const metrics = newMetrics();
      store(
        metrics,
        acceptedEntry(sampleRequest()),
        granted(1, 2_000),
        receiptEntry(receiptFacts("entry_2", { startedAtMs }), { at: at(4_000) }),
      );
      const shown = await scrape(metrics);
      expect([shown.sum("toolrunner_call_wait_seconds_sum"), shown.sum("toolrunner_call_run_seconds_sum")]).toEqual([waited, ran]);
      expect(shown.sum("toolrunner_call_wait_seconds_count")).toBe(startedAtMs === null ? 0 : 1);
    }
  });

  it("count each attempt and retry, and the wait once, of a call that loses a lease and fails before it succeeds", async () => {
    const metrics = newMetrics();
    const failed = receiptFacts("entry_4", {
      attempt: 2,
      outcome: "failed",
      value: null,
      startedAtMs: at(31_000),
      error: { code: "busy", message: "later", retryable: true, retryAfterMs: null, details: [] },
    });
    const live = { startedAtMs: at(1_000), startedSeq: 4, lastSeq: 4 };
    store(
      metrics,
      acceptedEntry(sampleRequest()),
      granted(1, 500),
      { kind: "lease_lost", at: at(20_000), grantId: "entry_2", cause: "lease", message: "silent", retryAtMs: at(21_000), live },
      granted(2, 30_000),
      receiptEntry(failed, { at: at(32_000), retryAtMs: at(33_000) }),
      granted(3, 40_000),
      receiptEntry(receiptFacts("entry_6", { attempt: 3, startedAtMs: at(41_000), digest: "digest_3" }), { at: at(43_000) }),
      { kind: "evidence", at: at(50_000), receipt: receiptFacts("entry_2", { digest: "digest_late" }) },
    );
    const shown = await scrape(metrics);
    expect(shown.sum("toolrunner_attempts_total", SHOP)).toBe(3);
    expect(shown.sum("toolrunner_leases_lost_total", { ...SHOP, cause: "lease" })).toBe(1);
    expect(shown.sum("toolrunner_retries_total", { ...SHOP, cause: "lease" })).toBe(1);
    expect(shown.sum("toolrunner_retries_total", { ...SHOP, cause: "failure" })).toBe(1);
    expect(shown.sum("toolrunner_retries_total")).toBe(2);
    expect(shown.sum("toolrunner_late_receipts_total", SHOP)).toBe(1);
    expect(shown.sum("toolrunner_calls_settled_total")).toBe(1);
    expect([shown.sum("toolrunner_call_wait_seconds_count"), shown.sum("toolrunner_call_wait_seconds_sum")]).toEqual([1, 1]);
    expect([shown.sum("toolrunner_call_run_seconds_count"), shown.sum("toolrunner_call_run_seconds_sum")]).toEqual([2, 3]);
  });

  it("count a grant that came back without a run by its reason, not as a retry", async () => {
    const metrics = newMetrics();
    const back = (grantId: string, reason: "unavailable" | "forbidden" | "unsent"): CallEntry => ({
      kind: "returned",
      at: at(1_000),
      grantId,
      reason,
      message: "",
      notBeforeMs: null,
    });
    const start = [acceptedEntry(sampleRequest()), granted(1, 500)];
    store(metrics, ...start, back("entry_2", "unavailable"), granted(1, 2_000), back("entry_4", "unsent"));
    store(metrics, ...start, back("entry_2", "forbidden"));
    const shown = await scrape(metrics);
    const reasons = ["unavailable", "unsent", "forbidden"].map((reason) => shown.sum("toolrunner_grants_returned_total", { reason }));
    expect(reasons).toEqual([1, 1, 1]);
    expect(shown.sum("toolrunner_attempts_total")).toBe(3);
    expect(shown.sum("toolrunner_retries_total")).toBe(0);
    expect(shown.sum("toolrunner_call_run_seconds_count")).toBe(0);
    expect(shown.sum("toolrunner_calls_settled_total", { state: "denied" })).toBe(1);
  });

  it("count an unknown outcome when it is opened and when a person closes it", async () => {
    const metrics = newMetrics();
    const request = sampleRequest({ idempotent: false });
    const lost: CallEntry = {
      kind: "lease_lost",
      at: at(20_000),
      grantId: "entry_2",
      cause: "runner_restarted",
      message: "unknown",
      retryAtMs: null,
    };
    const verdict = { kind: "reconciled", at: at(30_000), by: "key_1", note: null, value: null } as const;
    const notApplied: CallEntry = { ...verdict, outcome: "not_applied", error: null };
    const error = { code: "outcome_unknown", message: "given up", retryable: false, retryAfterMs: null, details: [] };
    store(metrics, acceptedEntry(request), granted(1, 500), lost, notApplied);
    store(metrics, acceptedEntry(request), granted(1, 500), lost, { ...verdict, outcome: "abandon", error });
    store(metrics, acceptedEntry(request), granted(1, 500), lost, receiptEntry(receiptFacts("entry_2"), { at: at(31_000) }));
    const shown = await scrape(metrics);
    expect(shown.sum("toolrunner_reconciliations_opened_total", SHOP)).toBe(3);
    for (const by of ["not_applied", "abandon", "runner"]) expect(shown.sum("toolrunner_reconciliations_closed_total", { by })).toBe(1);
    expect(shown.sum("toolrunner_retries_total", { cause: "not_applied" })).toBe(1);
    expect(shown.sum("toolrunner_leases_lost_total", { cause: "runner_restarted" })).toBe(3);
  });

  it("count a cancel by how far it came (K3)", async () => {
    const metrics = newMetrics();
    const error = { code: "call_cancelled", message: "no", retryable: false, retryAfterMs: null, details: [] };
    const asked: CallEntry = { kind: "cancel_requested", at: at(1_000), reason: "no" };
    const answered = (level: "delivered" | "ignored"): CallEntry => ({ kind: "cancel_answered", at: at(1_100), level });
    const stopped = receiptEntry(receiptFacts("entry_2", { outcome: "cancelled", value: null, error }), { at: at(2_000) });
    store(metrics, acceptedEntry(sampleRequest()), { kind: "cancelled", at: at(10), error, letRun: false });
    store(metrics, acceptedEntry(sampleRequest()), granted(1, 500), asked, answered("delivered"), stopped);
    store(metrics, acceptedEntry(sampleRequest()), granted(1, 500), asked, answered("ignored"), {
      kind: "cancelled",
      at: at(1_200),
      error,
      letRun: true,
    });
    const shown = await scrape(metrics);
    const levels = ["at_once", "requested", "delivered", "stopped", "ignored"].map((level) =>
      shown.sum("toolrunner_cancels_total", { level }),
    );
    expect(levels).toEqual([1, 2, 1, 1, 1]);
    expect(shown.sum("toolrunner_calls_settled_total", { state: "cancelled" })).toBe(3);
    expect(shown.sum("toolrunner_call_errors_total", { code: "call_cancelled" })).toBe(3);
  });

  it("show a handler's own error codes as other", async () => {
    const metrics = newMetrics();
    for (let index = 0; index < 500; index += 1) {
      const error = { code: `mine"${index}\n`, message: "", retryable: false, retryAfterMs: null, details: [] };
      store(
        metrics,
        acceptedEntry(sampleRequest()),
        granted(1, 5),
        receiptEntry(receiptFacts("entry_2", { outcome: "failed", value: null, error })),
      );
    }
    const shown = await scrape(metrics);
    expect(shown.metrics.get("toolrunner_call_errors_total")?.samples).toEqual([
      { name: "toolrunner_call_errors_total", labels: { code: "other" }, value: 500 },
    ]);
  });

  it("show so many tools by name, and all later ones together", async () => {
    const metrics = newMetrics();
    for (let index = 0; index < TOOLS_MAX + 50; index += 1) store(metrics, acceptedEntry(sampleRequest({ tool: `tool_${index}` })));
    store(metrics, acceptedEntry(sampleRequest({ tool: "tool_0" })));
    const shown = await scrape(metrics);
    expect(shown.metrics.get("toolrunner_calls_accepted_total")?.samples.length).toBe(TOOLS_MAX + 1);
    expect(shown.sum("toolrunner_calls_accepted_total", { tool: "tool_0" })).toBe(2);
    expect(shown.sum("toolrunner_calls_accepted_total", { toolset: "other", tool: "other" })).toBe(50);
    expect(shown.sum("toolrunner_calls_accepted_total")).toBe(TOOLS_MAX + 51);
  });

  it("tell a reader no name of another application's tools, and still count them (A2)", async () => {
    const metrics = newMetrics();
    const theirs = sampleRequest({ application: "rival", toolset: "secret", tool: "plan" });
    store(metrics, acceptedEntry(theirs), granted(1, 2_000), receiptEntry(receiptFacts("entry_2", { startedAtMs: at(2_500) })));
    store(metrics, acceptedEntry({ ...theirs, tool: "other_plan" }));
    store(metrics, acceptedEntry(sampleRequest({ toolset: "other", tool: "other" })));
    store(metrics, acceptedEntry(sampleRequest()));
    const { application, toolset } = theirs;
    const openCalls = ["plan", "other_plan"].map(
      (tool) => ({ state: "queued", application, toolset, tool, createdAtMs: Date.now() }) as const,
    );
    metrics.lookAt(() => ({ ...NOTHING, openCalls }), undefined);
    // Two at once: each gets its own picture.
    const [ours, rivals] = await Promise.all([metrics.read("default"), metrics.read("rival")]);
    expect(ours.text).not.toMatch(/secret|plan/);
    const shown = parseMetrics(ours.text);
    expect(shown.sum("toolrunner_calls_accepted_total", SHOP)).toBe(1);
    expect(shown.sum("toolrunner_calls_accepted_total", { tool: "other" })).toBe(3);
    expect(shown.sum("toolrunner_call_total_seconds_count", { tool: "other" })).toBe(1);
    expect(shown.sum("toolrunner_calls_open", { toolset: "other", tool: "other", state: "queued" })).toBe(2);
    expect(parseMetrics(rivals.text).sum("toolrunner_calls_settled_total", { toolset: "secret", tool: "plan" })).toBe(1);
    expect(rivals.text).not.toContain("refund");
  });

  it("keep their format and their sums whatever the names hold", async () => {
    const name = fc.oneof(
      fc.string({ unit: "binary" }),
      fc.constantFrom(
        '"',
        "\\",
        "\n",
        '\\"',
        "} 1\nother_metric 2",
        "a,b",
        "__proto__",
        "constructor",
        "",
        "\r",
        "\u2028",
        "other",
        "é".repeat(300),
      ),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(name, name, name), { minLength: 1, maxLength: 20 }), async (calls) => {
        const metrics = newMetrics();
        for (const [toolset, tool, code] of calls) {
          store(metrics, acceptedEntry(sampleRequest({ toolset, tool })));
          metrics.meter.requestRefused("http", code);
          metrics.meter.httpRequest(code, "unknown", 404, 1);
        }
        const shown = await scrape(metrics);
        expect(shown.sum("toolrunner_calls_accepted_total")).toBe(calls.length);
        expect(shown.sum("toolrunner_requests_refused_total")).toBe(calls.length);
        for (const [toolset, tool] of calls) {
          const same = calls.filter((each) => each[0] === toolset && each[1] === tool).length;
          expect(shown.sum("toolrunner_calls_accepted_total", { toolset, tool })).toBeGreaterThanOrEqual(same);
        }
        expect([...shown.metrics.keys()]).toEqual(Object.values(METRICS).map(({ name: known }) => known));
        metrics.stop();
      }),
      { numRuns: 50 },
    );
  });

  it("bound the series of a family, whatever is told", async () => {
    const { meter, read } = newMetrics();
    for (let index = 0; index < 5_000; index += 1) meter.grpcRequest(`Method${index}`, "OK", 1);
    const shown = parseMetrics((await read("default")).text);
    expect(shown.metrics.get("toolrunner_grpc_requests_total")?.samples.length).toBeLessThanOrEqual(1_001);
    expect(shown.sum("toolrunner_grpc_requests_total")).toBe(5_000);
    expect(shown.sum("toolrunner_grpc_request_seconds_count")).toBe(5_000);
  });

  it("count methods and close codes of a peer's choice as other", async () => {
    const metrics = newMetrics();
    const { meter } = metrics;
    for (const method of ["GET", "PROPFIND", "BREW"]) meter.httpRequest(method, "unknown", 404, 2);
    for (const code of [1000, 1006, 4409, 3123, 4999]) meter.sessionClosed("grpc", "backend", code);
    const shown = await scrape(metrics);
    expect(shown.sum("toolrunner_http_requests_total", { method: "other", status: "404" })).toBe(2);
    const reasons = ["normal", "connection_lost", "superseded", "other"];
    expect(reasons.map((reason) => shown.sum("toolrunner_sessions_closed_total", { reason }))).toEqual([1, 1, 1, 2]);
  });

  it("look at what the broker holds when somebody scrapes, and only then", async () => {
    const metrics = newMetrics();
    let looks = 0;
    const now = Date.now();
    const call = { application: "default", toolset: "shop", tool: "refund" };
    metrics.lookAt(
      () => {
        looks += 1;
        return {
          ...NOTHING,
          openCalls: [
            { ...call, state: "queued", createdAtMs: now - 60_000 },
            { ...call, state: "queued", createdAtMs: now - 5_000 },
            { ...call, state: "needs_reconciliation", createdAtMs: now + 99_000 },
          ],
          sessions: [
            { transport: "grpc", bindingKind: "backend", slots: 4, slotsInUse: 1 },
            { transport: "grpc", bindingKind: "backend", slots: 2, slotsInUse: 3 },
            { transport: "websocket_binary", bindingKind: "browser", slots: 1, slotsInUse: 0 },
          ],
          liveBrokers: 3,
          ledgerSilentMs: 6_500,
          ledgerAway: true,
          newestVersion: 120,
        };
      },
      () => 100,
    );
    expect(looks).toBe(0);
    const shown = await scrape(metrics);
    expect(looks).toBe(1);
    expect(shown.sum("toolrunner_calls_open", { ...SHOP, state: "queued" })).toBe(2);
    expect(shown.sum("toolrunner_calls_open", { ...SHOP, state: "needs_reconciliation" })).toBe(1);
    const oldest = shown.sum("toolrunner_calls_oldest_seconds", { state: "queued" });
    expect([oldest >= 60, oldest < 100]).toEqual([true, true]);
    expect(shown.sum("toolrunner_calls_oldest_seconds", { state: "needs_reconciliation" })).toBe(0);
    expect(shown.sum("toolrunner_sessions", { transport: "grpc", binding_kind: "backend" })).toBe(2);
    expect(shown.sum("toolrunner_runner_slots", { binding_kind: "backend", use: "used" })).toBe(4);
    expect(shown.sum("toolrunner_runner_slots", { binding_kind: "backend", use: "free" })).toBe(3);
    expect(shown.sum("toolrunner_brokers")).toBe(3);
    expect(shown.sum("toolrunner_ledger_away")).toBe(1);
    expect(shown.sum("toolrunner_ledger_silent_seconds")).toBe(6.5);
    expect(shown.sum("toolrunner_index_lag_entries")).toBe(20);
  });

  it("time the ledger by outcome, and show what is under way", async () => {
    const metrics = newMetrics();
    const { meter } = metrics;
    for (const end of ["stored", "stored", "conflict", "unknown"] as const) {
      meter.appendBegan();
      meter.appendEnded(end, 4);
    }
    meter.appendBegan();
    meter.callRead("call", 1);
    const shown = await scrape(metrics);
    const counts = ["stored", "conflict", "unknown"].map((outcome) => shown.sum("toolrunner_ledger_append_seconds_count", { outcome }));
    expect(counts).toEqual([2, 1, 1]);
    expect(shown.sum("toolrunner_ledger_append_seconds_sum", { outcome: "stored" })).toBe(0.008);
    expect(shown.sum("toolrunner_ledger_appends_pending")).toBe(1);
    expect(shown.sum("toolrunner_ledger_read_seconds_count", { what: "call" })).toBe(1);
  });

  it("of two brokers in one process are their own", async () => {
    const [one, two] = [newMetrics(), newMetrics()];
    store(one, acceptedEntry(sampleRequest()));
    expect((await scrape(one)).sum("toolrunner_calls_accepted_total")).toBe(1);
    expect((await scrape(two)).sum("toolrunner_calls_accepted_total")).toBe(0);
  });

  it("are written once for all that ask while another text is written", async () => {
    const metrics = newMetrics();
    let looks = 0;
    metrics.lookAt(() => {
      looks += 1;
      return NOTHING;
    }, undefined);
    const texts = await Promise.all(Array.from({ length: 50 }, (_, index) => metrics.read(index % 2 === 0 ? "default" : "rival")));
    expect(looks).toBe(2);
    for (const { text } of texts) expect(parseMetrics(text).sum("toolrunner_brokers")).toBe(1);
    await metrics.read("default");
    expect(looks).toBe(3);
  });

  it("are shown again after they could not be made once", async () => {
    const metrics = newMetrics();
    metrics.lookAt(() => {
      throw new Error("a fault");
    }, undefined);
    await expect(metrics.read("default")).rejects.toThrow("a fault");
    metrics.lookAt(() => NOTHING, undefined);
    expect((await scrape(metrics)).sum("toolrunner_brokers")).toBe(1);
  });
});
