/** Every metric: its name, type and labels, and what an operator reads in it. `docs/operations.md` has the same list; a test compares them. */
import { CALL_BOUNDS, LEDGER_BOUNDS, PAUSE_BOUNDS, REQUEST_BOUNDS } from "./tally.js";

/** One metric. */
export interface MetricDefinition {
  readonly name: string;
  readonly type: "counter" | "gauge" | "histogram";
  readonly labels: readonly string[];
  readonly help: string;
  /** Upper bounds of the buckets of a histogram, in its unit. */
  readonly bounds?: readonly number[];
}

const counter = <const L extends readonly string[]>(name: string, labels: L, help: string) =>
  ({ name, type: "counter", labels, help }) as const;
const gauge = <const L extends readonly string[]>(name: string, labels: L, help: string) =>
  ({ name, type: "gauge", labels, help }) as const;
const histogram = <const L extends readonly string[]>(name: string, labels: L, bounds: readonly number[], help: string) =>
  ({ name, type: "histogram", labels, help, bounds }) as const;

const TOOL = ["toolset", "tool"] as const;

/** By what the code calls them. */
export const METRICS = {
  info: gauge("toolrunner_broker_info", ["version", "ledger"], "Always 1. Join on it to see what runs where."),
  accepted: counter(
    "toolrunner_calls_accepted_total",
    TOOL,
    "Calls that this broker acknowledged to agents. Compare with settled and open.",
  ),
  settled: counter(
    "toolrunner_calls_settled_total",
    [...TOOL, "state"],
    "Calls that this broker settled, by final state. Watch the share of failed and timed_out.",
  ),
  callErrors: counter(
    "toolrunner_call_errors_total",
    ["code"],
    "Settled calls with an error, by code; codes of handlers' own are other. The error table says what to do.",
  ),
  open: gauge(
    "toolrunner_calls_open",
    [...TOOL, "state"],
    "Open calls that this broker drives. queued that rises needs runners; needs_reconciliation needs a person.",
  ),
  oldest: gauge("toolrunner_calls_oldest_seconds", ["state"], "Age of the oldest open call that this broker drives, since its acceptance."),
  wait: histogram(
    "toolrunner_call_wait_seconds",
    TOOL,
    CALL_BOUNDS,
    "Acceptance to the first start of a handler. Rising: too few runners or slots.",
  ),
  run: histogram(
    "toolrunner_call_run_seconds",
    TOOL,
    CALL_BOUNDS,
    "Start of a handler to its receipt, for each attempt that gave one. Rising: the tool is slow.",
  ),
  total: histogram(
    "toolrunner_call_total_seconds",
    TOOL,
    CALL_BOUNDS,
    "Acceptance to settlement, confirmation and all attempts included: what agents see.",
  ),
  attempts: counter("toolrunner_attempts_total", TOOL, "Grants that were stored. Well above accepted calls: look at retries and returns."),
  retries: counter("toolrunner_retries_total", [...TOOL, "cause"], "Calls that were queued for another attempt, by cause."),
  returns: counter(
    "toolrunner_grants_returned_total",
    ["reason"],
    "Grants that came back without a run. Many unavailable: runners claim more than they can take.",
  ),
  leasesLost: counter(
    "toolrunner_leases_lost_total",
    [...TOOL, "cause"],
    "Attempts whose runner went silent (lease) or restarted. Look at the runners and their network.",
  ),
  lateReceipts: counter(
    "toolrunner_late_receipts_total",
    TOOL,
    "Receipts that came too late and were kept as evidence. The handler ran longer than its call.",
  ),
  reconciliationsOpened: counter(
    "toolrunner_reconciliations_opened_total",
    TOOL,
    "Calls whose outcome became unknown. Make the tool idempotent if it happens often.",
  ),
  reconciliationsClosed: counter(
    "toolrunner_reconciliations_closed_total",
    ["by"],
    "Unknown outcomes that were found out, by a person's verdict or by the runner itself.",
  ),
  cancels: counter(
    "toolrunner_cancels_total",
    ["level"],
    "Cancels by how far they came. Many ignored: handlers do not listen to their signal.",
  ),
  adopted: counter(
    "toolrunner_calls_adopted_total",
    [],
    "Open calls that this broker took over from another one, or from its own last start.",
  ),
  removedCalls: counter(
    "toolrunner_calls_removed_total",
    [],
    "Settled calls that this broker removed after their retention. Stays behind accepted calls for long: retention cannot keep up.",
  ),
  removedValues: counter(
    "toolrunner_values_removed_total",
    [],
    "Large results that were removed, with their calls or because no call named them.",
  ),
  sessions: gauge("toolrunner_sessions", ["transport", "binding_kind"], "Runners connected to this broker."),
  slots: gauge(
    "toolrunner_runner_slots",
    ["binding_kind", "use"],
    "Slots of the runners connected to this broker. None free while calls are queued: add runners.",
  ),
  sessionsOpened: counter(
    "toolrunner_sessions_opened_total",
    ["transport", "binding_kind"],
    "Runner sessions that were opened. Much above the number of runners: they reconnect.",
  ),
  sessionsClosed: counter(
    "toolrunner_sessions_closed_total",
    ["transport", "binding_kind", "reason"],
    "Runner sessions that ended, by close code's name. Look at connection_lost and unresponsive.",
  ),
  sessionsRefused: counter(
    "toolrunner_sessions_refused_total",
    ["code"],
    "Connections and hellos of runners that were refused. Look at their keys and versions.",
  ),
  framesReceived: counter("toolrunner_frames_received_total", ["transport", "kind"], "Frames of runners."),
  framesSent: counter("toolrunner_frames_sent_total", ["transport", "kind"], "Frames that were handed to the transport for runners."),
  appends: histogram(
    "toolrunner_ledger_append_seconds",
    ["outcome"],
    LEDGER_BOUNDS,
    "Appends to the ledger until their outcome was known, repeats included. Rising: the ledger's disk or network is slow.",
  ),
  appendsPending: gauge(
    "toolrunner_ledger_appends_pending",
    [],
    "Appends whose outcome is not known yet. Stays high: the ledger does not answer.",
  ),
  reads: histogram("toolrunner_ledger_read_seconds", ["what"], LEDGER_BOUNDS, "Reads of whole calls, and of what was added to them."),
  ledgerAway: gauge(
    "toolrunner_ledger_away",
    [],
    "1 while the ledger is out of reach and agents are told so. Bring it back; nothing is lost.",
  ),
  ledgerSilent: gauge("toolrunner_ledger_silent_seconds", [], "Since the ledger last answered. It is asked about once a second."),
  brokers: gauge("toolrunner_brokers", [], "Brokers that this one sees live, itself included. Differs between brokers: their bus is cut."),
  indexLag: gauge(
    "toolrunner_index_lag_entries",
    [],
    "Entries of this broker's own that its index of calls does not show yet. Absent without an index.",
  ),
  httpRequests: counter(
    "toolrunner_http_requests_total",
    ["method", "route", "status"],
    "HTTP requests that ended. 5xx asks for a look at the log.",
  ),
  httpSeconds: histogram(
    "toolrunner_http_request_seconds",
    ["route"],
    REQUEST_BOUNDS,
    "HTTP requests from first to last byte, waits and event streams included.",
  ),
  grpcRequests: counter(
    "toolrunner_grpc_requests_total",
    ["method", "status"],
    "gRPC requests of agents that ended. INTERNAL and UNAVAILABLE ask for a look at the log.",
  ),
  grpcSeconds: histogram(
    "toolrunner_grpc_request_seconds",
    ["method"],
    REQUEST_BOUNDS,
    "gRPC requests of agents, waits and streams included.",
  ),
  refusals: counter(
    "toolrunner_requests_refused_total",
    ["interface", "code"],
    "Requests of agents that were refused, by code. The error table says what to do.",
  ),
  cpu: counter("process_cpu_seconds_total", [], "Processor time, user and system. A broker uses one core at most, and a little beside."),
  startTime: gauge("process_start_time_seconds", [], "When the process started, in Unix time."),
  residentMemory: gauge("process_resident_memory_bytes", [], "Memory that the process holds."),
  heapUsed: gauge("nodejs_heap_size_used_bytes", [], "JavaScript heap in use. Rising without end: a leak, or calls that pile up."),
  heapTotal: gauge("nodejs_heap_size_total_bytes", [], "JavaScript heap, reserved."),
  externalMemory: gauge("nodejs_external_memory_bytes", [], "Buffers and other memory outside the heap."),
  loopLagHalf: gauge("nodejs_eventloop_lag_p50_seconds", [], "How late timers ran since the last scrape, for the better half of them."),
  loopLagMost: gauge(
    "nodejs_eventloop_lag_p99_seconds",
    [],
    "The same for all but one in a hundred. Above 0.1: the broker has too much to do.",
  ),
  loopLagMax: gauge("nodejs_eventloop_lag_max_seconds", [], "The longest standstill since the last scrape. Above 1, leases are in danger."),
  loopActive: counter("nodejs_eventloop_active_seconds_total", [], "Time in which the event loop worked. Its rate is the load, 1 is full."),
  gc: histogram("nodejs_gc_duration_seconds", ["kind"], PAUSE_BOUNDS, "Pauses of the garbage collector."),
} satisfies Readonly<Record<string, MetricDefinition>>;
