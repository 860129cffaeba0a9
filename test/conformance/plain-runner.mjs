/**
 * A runner without the SDK, as an author of another language would begin: JSON frames over a WebSocket, a journal of synced lines, one file.
 * A subject of the runner suite. `--fault NAME` plants a fault, with which the suite's own tests make sure that it would be found.
 */
import { createHash, randomUUID } from "node:crypto";
import { existsSync, fsyncSync, openSync, readFileSync, writeSync } from "node:fs";
import { createInterface } from "node:readline";
import { WebSocket } from "ws";

const fault = process.argv[2] === "--fault" ? process.argv[3] : undefined;
const say = (event) => writeSync(1, `${JSON.stringify(event)}\n`);

// ---- the journal: one synced line for each record; the picture of it in memory ----

let journalFile;
let journalId;
/** By grant id: {callId, grantId, fence, attempt, phase, receipt, acknowledged, here}. */
const grants = new Map();
/** By call id: no grant with this fence or an older one is taken. */
const refusedFences = new Map();

function openJournal(path) {
  const lines = existsSync(path) ? readFileSync(path, "utf8").split("\n").filter(Boolean).map(JSON.parse) : [];
  journalFile = openSync(path, "a");
  if (lines.length === 0) write({ kind: "journal", id: `jrn_${randomUUID()}` });
  else for (const line of lines) take(line);
  for (const grant of grants.values()) grant.here = false;
}

function write(record) {
  take(record);
  if (fault === `forgets-${record.kind}`) return;
  writeSync(journalFile, `${JSON.stringify(record)}\n`);
  fsyncSync(journalFile);
}

function take({ kind, ...record }) {
  if (kind === "journal") journalId = record.id;
  if (kind === "refused") refusedFences.set(record.callId, Math.max(record.fence, refusedFences.get(record.callId) ?? 0));
  if (kind === "started") grants.set(record.grantId, { ...record, phase: "RUNNING", here: true });
  if (kind === "finished") Object.assign(grants.get(record.receipt.grantId) ?? {}, { phase: "FINISHED", receipt: record.receipt });
  if (kind === "acknowledged") Object.assign(grants.get(record.grantId) ?? {}, { acknowledged: true });
}

const held = () =>
  [...grants.values()]
    .filter(({ acknowledged }) => acknowledged !== true)
    .map(({ callId, grantId, fence, phase, here }) => ({
      callId,
      grantId,
      fence: String(fence),
      phase: `GRANT_PHASE_${phase === "RUNNING" && !here ? "OUTCOME_UNKNOWN" : phase}`,
    }));

// ---- the session ----

let setUp;
let socket;
let epoch;
let tries = 0;
let draining = false;
let brokerDrains = false;
/** When each numbered answer of this session was sent; and which grants it listed. */
const answers = new Map();
const running = new Map();

const send = (kind, value) => socket?.readyState === WebSocket.OPEN && socket.send(JSON.stringify({ [kind]: value }));

function connect() {
  const mine = new WebSocket(setUp.url, ["toolrunner.v1.json"], { headers: { authorization: `Bearer ${setUp.token}` } });
  mine.on("open", () => {
    socket = mine;
    answers.clear();
    answers.set(0, { at: Date.now(), listed: new Set(held().map(({ grantId }) => grantId)) });
    send("hello", {
      protocolVersions: [1],
      sdkName: "plain",
      sdkVersion: "1",
      runnerId: setUp.runner_id,
      binding: setUp.binding,
      journalId,
      handlers: setUp.tools.map(({ name, read_only, ...tool }) => ({ tool: name, readOnly: read_only, ...tool })),
      slots: draining ? 0 : setUp.slots,
      held: held(),
    });
  });
  mine.on("message", (data) => socket === mine && receive(JSON.parse(String(data))));
  mine.on("error", () => undefined);
  mine.on("close", (code) => {
    if (socket === mine) socket = undefined;
    brokerDrains = false;
    const final = code === 1000 || (code >= 4400 && code < 4500 && code !== 4408 && code !== 4429);
    if ((final && fault !== "redials-for-ever") || draining) return;
    tries += 1;
    setTimeout(connect, Math.min(60_000, 500 * 2 ** (tries - 1)) * (0.5 + Math.random() / 2));
  });
}

function receive(frame) {
  const [kind, value] = Object.entries(frame)[0] ?? [];
  const handle = FRAMES[kind];
  if (handle !== undefined) handle(value);
  else if (fault !== "skips-unknown-frames") send("protocolFault", { code: "frame_unknown", message: `no frame ${kind}` });
}

const FRAMES = {
  welcome({ sessionEpoch, wantsToolDefinitions }) {
    tries = 0;
    epoch = sessionEpoch;
    const tools = setUp.tools.map(({ name, version }) => ({ name, version, description: name, inputSchemaJson: "{}" }));
    if (wantsToolDefinitions) send("toolDefinitions", { tools });
    for (const { receipt, phase, acknowledged } of grants.values()) {
      if (phase === "FINISHED" && acknowledged !== true && fault !== "never-repeats") send("receipt", receiptToSend(receipt));
    }
  },
  refusal: () => undefined,
  grant: (grant) => takeGrant({ ...grant, fence: Number(grant.fence ?? 0) }),
  ping({ number = 0, acknowledged }) {
    answers.set(number, { at: Date.now(), listed: new Set(held().map(({ grantId }) => grantId)) });
    send("pong", { number, held: fault === "reports-nothing" ? [] : held() });
    const answer = answers.get(acknowledged ?? 0);
    for (const run of running.values()) {
      if (fault === "renews-blindly") run.renew(Date.now());
      else if (answer?.listed.has(run.grantId)) run.renew(answer.at);
    }
  },
  cancel(name) {
    const run = running.get(name.grantId);
    const level = run?.cancellable ? "DELIVERED" : "IGNORED";
    send("cancelAnswer", { callId: name.callId, grantId: name.grantId, level: `CANCEL_LEVEL_${level}` });
    if (run?.cancellable && fault !== "ignores-cancel") run.abort("cancelled");
  },
  revoke({ callId, grantId, fence = "0" }) {
    write({ kind: "refused", callId, fence: Number(fence) });
    const known = grants.get(grantId);
    const phase = known === undefined ? "NOT_STARTED" : known.phase === "RUNNING" && !known.here ? "OUTCOME_UNKNOWN" : known.phase;
    if (fault !== "runs-on-after-revoke") running.get(grantId)?.abort("revoked");
    send("revokeAnswer", { callId, grantId, fence, journalId, phase: `GRANT_PHASE_${phase}` });
  },
  receiptAck({ grantId }) {
    if (fault !== "ignores-acknowledgements") write({ kind: "acknowledged", grantId });
    leaveWhenIdle();
  },
  drain() {
    brokerDrains = true;
    if (fault === "leaves-at-once") socket?.close(4501);
    leaveWhenIdle();
  },
  protocolFault: () => undefined,
};

function leaveWhenIdle() {
  if (running.size > 0 || held().length > 0) return;
  if (draining) {
    socket?.close(1000);
    socket?.once("close", () => process.exit(0));
  } else if (brokerDrains) socket?.close(4501);
}

// ---- grants ----

function takeGrant(grant) {
  const { callId, grantId, fence } = grant;
  const known = grants.get(grantId);
  if (known?.phase === "FINISHED") return send("receipt", receiptToSend(known.receipt));
  if (known !== undefined && fault !== "runs-twice") {
    return known.here && send("started", { callId, grantId, fence: String(fence), atUnixMs: String(known.at) });
  }
  const tool = setUp.tools.find(({ name, version }) => name === grant.tool && version === grant.version);
  const answer = answers.get(grant.pongNumber ?? 0);
  const leaseEndsAt = (answer?.at ?? 0) + grant.leaseMs;
  const obstacle =
    (grant.sessionEpoch !== epoch && fault !== "takes-any-epoch") ||
    (fence <= (refusedFences.get(callId) ?? -1) && fault !== "forgets-refusals") ||
    tool === undefined ||
    draining ||
    (running.size >= setUp.slots && fault !== "takes-too-many") ||
    (Date.now() >= leaseEndsAt && fault !== "starts-late");
  if (obstacle) {
    return send("decline", { callId, grantId, fence: String(fence), reason: "DECLINE_REASON_UNAVAILABLE", message: "not now" });
  }
  const at = Date.now();
  write({ kind: "started", callId, grantId, fence, attempt: grant.attempt, at });
  const run = { grantId, cancellable: tool.cancellable, abort: () => undefined, renew: () => undefined };
  running.set(grantId, run);
  send("started", { callId, grantId, fence: String(fence), atUnixMs: String(at) });
  say({ event: "started", call_id: callId, fence, attempt: grant.attempt });
  const args = JSON.parse(grant.argumentsJson);
  void handle(grant, args, run, leaseEndsAt).then((outcome) => finish(grant, at, outcome, run));
}

async function handle(grant, args, run, leaseEndsAt) {
  if (grant.tool === "echo") return { succeeded: { resultJson: JSON.stringify(args) } };
  if (grant.tool === "fail") return { failed: { code: args.code, message: args.message, retryable: args.retryable } };
  if (grant.tool === "fill") {
    const resultJson = JSON.stringify("x".repeat(args.bytes));
    return resultJson.length > grant.maxResultBytes && fault !== "sends-too-much"
      ? { failed: { code: "result_too_large", message: `${resultJson.length} bytes are over the limit of ${grant.maxResultBytes}` } }
      : { succeeded: { resultJson } };
  }
  return new Promise((resolve) => {
    gates.set(grant.callId, () => resolve({ succeeded: { resultJson: '{"opened":true}' } }));
    run.abort = (reason) => {
      say({ event: "aborted", call_id: grant.callId });
      run.cancelled = reason === "cancelled";
      resolve(reason === "cancelled" ? { cancelled: { message: "cancelled" } } : { failed: { code: "handler_error", message: reason } });
    };
    let timer;
    run.renew = (from) => {
      clearTimeout(timer);
      if (fault !== "ignores-leases") timer = setTimeout(() => run.abort("lease_lost"), from + grant.leaseMs - Date.now());
    };
    run.renew(leaseEndsAt - grant.leaseMs);
  });
}

function finish({ callId, grantId, fence, attempt }, startedAt, outcome, run) {
  const digest = createHash("sha256").update(JSON.stringify(outcome)).digest("hex");
  const times = { startedAtUnixMs: String(startedAt), finishedAtUnixMs: String(Date.now()) };
  const receipt = { callId, grantId, fence: String(fence), attempt, digest, ...times, ...outcome };
  write({ kind: "finished", receipt });
  running.delete(grantId);
  if (run.cancelled) send("cancelAnswer", { callId, grantId, level: "CANCEL_LEVEL_STOPPED" });
  send("receipt", receiptToSend(receipt));
}

function receiptToSend(receipt) {
  return fault === "changes-digests" ? { ...receipt, digest: createHash("sha256").update(randomUUID()).digest("hex") } : receipt;
}

// ---- what the suite says ----

const gates = new Map();
const DO = {
  serve(given) {
    setUp = given;
    openJournal(given.journal);
    connect();
  },
  describe: ({ name }) => say({ event: "described", name, durable_journal: true, codec: false }),
  open: ({ call_id }) => gates.get(call_id)?.(),
  drain() {
    draining = true;
    if (fault !== "claims-on") send("claim", { slots: 0 });
    send("drain", { reason: "stopping", deadlineMs: 30_000 });
    leaveWhenIdle();
  },
};
const lines = createInterface({ input: process.stdin });
lines.on("line", (line) => {
  const command = JSON.parse(line);
  DO[command.do]?.(command);
});
// Nobody is left to tell it what to do.
lines.once("close", () => process.exit());
