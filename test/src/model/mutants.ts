/**
 * The rules taken out, one by one: what of the product's own code is changed for it, and which schedule has to find that.
 * The changes are made to compiled files as a process of its own loads them: the product has no switch for it.
 */
import type { Replacement } from "./replacement.js";

/** One rule taken out. */
export interface Mutant {
  readonly rule: string;
  /** What the code does instead. */
  readonly does: string;
  /** Part of what is found: another failure would not be about the rule. */
  readonly finds: string;
  readonly replacements: readonly Replacement[];
  /** Beginning of the name of the case that finds it. */
  readonly case: string;
  /** Plans find it, too, within this many: it is left to them in the long run. */
  readonly plans?: number;
}

const at = (file: string, text: string, by: string): Replacement => ({ file, text, by });
const wire = (name: string, text: string, by: string) => at(`broker/dist/wire/${name}.js`, text, by);
const domain = (name: string, text: string, by: string) => at(`broker/dist/domain/call/${name}.js`, text, by);
const sdk = (name: string, text: string, by: string) => at(`runner-sdk/dist/core/${name}.js`, text, by);

export const MUTANTS: readonly Mutant[] = [
  {
    rule: "L2",
    does: "a broker forgets a call whose append was still unknown when it answered 503",
    finds: "the end of all calls: not within",
    replacements: [
      wire(
        "call-service",
        "(await ledgerWatch.guard(driver.created))",
        "(await ledgerWatch.guard(driver.created).catch((error) => { driver.abandon(); table.remove(driver); throw error; }))",
      ),
      wire("forgotten-calls", "if (!ledgerWatch.away) {", "if (false) {"),
    ],
    case: "L2",
  },
  {
    rule: "L3",
    does: "the fence of a grant is its attempt, not the version of its entry",
    finds: "I2: ",
    replacements: [domain("entry-facts", "fence: entry.version,", "fence: attempt,")],
    case: "L3",
    plans: 60,
  },
  {
    rule: "G1",
    does: "a silent runner counts as one that never began",
    finds: "I3: ",
    replacements: [
      domain(
        "decide",
        "const why = cause ===",
        'if (!repeatable) return { kind: "returned", at: nowMs, grantId: state.grant.grantId, reason: "never_started", message: "", notBeforeMs: null };\n    const why = cause ===',
      ),
      domain("edges", "const hasBegun = (entry, state) => ", "const hasBegun = () => false, unused = (entry, state) => "),
    ],
    case: "G1: nobody hears",
    plans: 200,
  },
  {
    rule: "G1",
    does: "whatever journal a runner has can say that a grant never began",
    finds: "I3: ",
    replacements: [
      wire("session-post", "found === undefined || record?.journalId !== grant.journalId", "found === undefined"),
      wire("perform", "if (state.grant.journalId !== command.runner.journalId) {", "if (false) {"),
      wire(
        "perform",
        "holds(state, command.grantId) && state.grant.journalId === command.runner.journalId",
        "holds(state, command.grantId)",
      ),
    ],
    case: "G1: a runner begins, and dies with its journal",
  },
  {
    rule: "G1",
    does: "a grant that was refused once is sent when its driver asks again",
    finds: "I3: ",
    replacements: [wire("runner-sessions", 'claim?.release();\n            this.memory.remember(grant.grantId, "refused");', "")],
    case: "G1: a driver is stopped",
  },
  {
    rule: "G2",
    does: "a runner's start is not durable when its handler begins",
    finds: "G2: ",
    replacements: [sdk("execution", 'await host.journal.append({ kind: "started"', 'host.journal.note({ kind: "started"')],
    case: "G2: a runner dies",
    plans: 60,
  },
  {
    rule: "G2",
    does: "what waits to begin goes on when a new hello says that it did not begin",
    finds: "G1: ",
    replacements: [
      sdk("grant-desk", "for (const execution of this.#live.values())\n            execution.drop();", ""),
      sdk("grant-desk", "await Promise.all([...this.#live.values()].map((execution) => execution.startDecided));", ""),
      sdk(
        "grant-desk",
        'reports.push({ ...nameOf(grant), phase: "running" });',
        'reports.push({ ...nameOf(grant), phase: inHello && phase === "admitting" ? "not_started" : "running" });',
      ),
    ],
    case: "G2: a runner dials again",
    plans: 200,
  },
  {
    rule: "G3",
    does: "a runner counts a lease from when it reads the grant",
    finds: "G3: ",
    replacements: [
      sdk("grant-desk", "const answeredAt = link.answerSentAt(grant.pongNumber);", "const answeredAt = instant(this.options.clock);"),
    ],
    case: "G3: a grant lies in the buffer",
    plans: 200,
  },
  {
    rule: "G3",
    does: "a runner counts its lease by the monotonic clock only",
    finds: "G3: ",
    replacements: [
      sdk(
        "clock",
        "Math.max(0, to.monotonicMs - from.monotonicMs, to.wallMs - from.wallMs)",
        "Math.max(0, to.monotonicMs - from.monotonicMs)",
      ),
    ],
    case: "G3: a machine sleeps",
  },
  {
    rule: "G3",
    does: "a broker that stood still takes leases for lost before it reads its sockets",
    finds: "its lease was taken for lost",
    replacements: [wire("timer-wheel", "if (lateMs > STALL_MS) {", "if (false) {")],
    case: "G3: a broker stands still",
  },
  {
    rule: "G4",
    does: "a reconcile handler is asked, and looks, while the handler still runs",
    finds: "it was done 2 times",
    replacements: [
      wire(
        "perform",
        'if (phase === "outcome_unknown" && state.kind === "needs_reconciliation"',
        'if ((phase === "outcome_unknown" || phase === "running") && state.kind === "needs_reconciliation"',
      ),
      sdk("reconcile-desk", "if (this.options.isLive(grant.callId))", "if (false)"),
    ],
    case: "G4",
  },
  {
    rule: "G5",
    does: "only a receipt that settles is acknowledged",
    finds: "the end of all calls: not within",
    replacements: [wire("receipt-delivery", "if (disposition !== undefined) {", 'if (disposition === "settled") {')],
    case: "G5",
  },
  {
    rule: "G5",
    does: "a receipt is acknowledged before it is stored",
    finds: "I4: ",
    replacements: [
      wire(
        "receipt-delivery",
        "const disposition = await this.deliver(",
        'session.channel.send(receiptAckFrame(receipt.callId, receipt.grantId, "settled"));\n            const disposition = await this.deliver(',
      ),
    ],
    case: "L3",
    plans: 60,
  },
  {
    rule: "I5",
    does: "a receipt of an older grant settles",
    finds: "I5: ",
    replacements: [
      domain("decide", "const stale = record.newestGrant?.grantId !== receipt.grantId;", "const stale = false;"),
      domain("edges", "const isNewest = (entry, state) => ", "const isNewest = () => true, unused = (entry, state) => "),
    ],
    case: "G5",
  },
  {
    rule: "G6",
    does: "an outcome that nobody knows is no answer to the agent's turn",
    finds: "only when its wait was over",
    replacements: [at("broker/dist/domain/call-view.js", '|| state === "needs_reconciliation"', "")],
    case: "G6",
  },
  {
    rule: "G7",
    does: "nobody is asked to confirm",
    finds: "G7: ",
    replacements: [wire("call-acceptance", 'confirm: tool.confirmation === "always",', "confirm: false,")],
    case: "G7",
    plans: 60,
  },
  {
    rule: "I7",
    does: "a receipt is sent before it is in the journal",
    finds: "I7: ",
    replacements: [
      sdk(
        "execution",
        'const written = await host.journal.appendUntilWritten({ kind: "finished"',
        'host.deliver(receipt);\n        const written = await host.journal.appendUntilWritten({ kind: "finished"',
      ),
    ],
    case: "L3",
    plans: 60,
  },
  {
    rule: "I8",
    does: "tabs get calls of whoever uses the binding",
    finds: "I8: ",
    replacements: [
      wire("session-registry", ": session.subject === requirement.subject && requirement.subject !== null", ": true"),
      wire("requirement", "subject === null ? handler :", "true ? handler :"),
    ],
    case: "I8",
    plans: 60,
  },
  {
    rule: "B1",
    does: "a broker is taken for gone by one heartbeat that is late",
    finds: "a live broker's calls were adopted",
    replacements: [
      wire("membership", "if (clock.monotonic() - at > figures.goneAfterMs) {", "if (clock.monotonic() - at > figures.heartbeatMs / 2) {"),
    ],
    case: "B1",
  },
  {
    rule: "B1",
    does: "nobody takes over the calls of a broker that is gone",
    finds: "12 entries of kind adopted: not within",
    replacements: [wire("take-over", "this.sweepSoon(brokerId, false);", "")],
    case: "B1",
  },
  {
    rule: "B2",
    does: "sessions of an older epoch stay",
    finds: "the end of the first: not within",
    replacements: [
      wire("runner-sessions", "if (session === undefined || session.ref.sessionEpoch >= newer.sessionEpoch) {", "if (true) {"),
    ],
    case: "B2: a second process",
  },
  {
    rule: "B2",
    does: "a runner that its own late hello superseded stays away",
    finds: "ended as refused",
    replacements: [wire("session-record", 'older.journalId !== "" && older.journalId === newer.journalId', "false")],
    case: "B2: a hello",
  },
  {
    rule: "B3",
    does: "a claim that appears wakes nobody up",
    finds: "1 entries of kind granted: not within 400 ms",
    replacements: [wire("call-search", 'this.context.bus.publish("claims",', "void (")],
    case: "B3: a call waits",
  },
  {
    rule: "B3",
    does: "an open offer is made once",
    finds: "1 entries of kind granted: not within 3000 ms",
    replacements: [wire("call-search", "if (search.task === undefined) {", "if (false) {")],
    case: "B3: the wake-up is lost",
  },
  {
    rule: "B5",
    does: "a request is refused before its key is looked up",
    finds: "toolset shop has no tool echo",
    replacements: [
      wire(
        "call-service",
        "error instanceof BrokerError && body.idempotency_key !== undefined && (await this.find(known.callId)) !== undefined",
        "false",
      ),
    ],
    case: "B5",
  },
];
