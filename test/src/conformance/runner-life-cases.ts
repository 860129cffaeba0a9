/** What a runner has to do, case by case: pings, leases, drain, and what its journal is for. */
import { GrantPhase, type HeldGrant } from "@toolrunner/proto";
import type { FakeSession } from "@toolrunner/runner-sdk/testing";
import { must, mustEqual, pause, QUIET_MS } from "./run-cases.js";
import { type RunnerCase, resultOf } from "./runner-cases.js";

/** Short, so that a case can wait for its end. */
const LEASE_MS = 1_500;
/** How much later than its end an abort may be seen: slow runtimes are welcome. */
const LATE_MS = 3_000;

export const PING_CASES: readonly RunnerCase[] = [
  {
    id: "pong",
    what: "A ping is answered at once with its number and every grant that is held: the running as RUNNING, the finished that nobody acknowledged as FINISHED.",
    section: "Pings",
    async run(stage) {
      const { session } = await stage.session();
      mustEqual(await session.ping(7), [], "what is held at first");
      const running = session.grant({ tool: "gate" });
      await session.next("started");
      const finished = session.grant({ tool: "echo" });
      await session.next("receipt");
      mustEqual(phases(await session.ping(8)), [`${finished.grantId} FINISHED`, `${running.grantId} RUNNING`].sort(), "what is held");
    },
  },
  {
    id: "lease-lost",
    what: "Without news from the broker the lease of what runs is over: the handler is aborted, and what comes of it is still sent.",
    section: "Leases",
    async run(stage) {
      const { session } = await stage.session({ leaseMs: LEASE_MS });
      const grant = session.grant({ tool: "gate", leaseMs: LEASE_MS });
      await session.next("started");
      await stage.subject.event("aborted", ({ call_id }) => call_id === grant.callId, LEASE_MS + LATE_MS);
      mustEqual((await session.next("receipt")).grantId, grant.grantId, "the grant of the receipt");
    },
  },
  {
    id: "lease-kept",
    what: "A ping that acknowledges an answer which listed the grant renews its lease.",
    section: "Leases",
    async run(stage) {
      const { session } = await stage.session({ leaseMs: LEASE_MS });
      const grant = session.grant({ tool: "gate", leaseMs: LEASE_MS });
      await session.next("started");
      for (let number = 1; number <= 8; number += 1) {
        await session.ping(number, number - 1);
        await pause(LEASE_MS / 4);
      }
      mustEqual(stage.subject.said("aborted").length, 0, "aborted handlers");
      stage.subject.tell({ do: "open", call_id: grant.callId });
      mustEqual(resultOf(await session.next("receipt")), { opened: true }, "the result");
    },
  },
  {
    id: "lease-not-kept",
    what: "A ping that acknowledges nothing, or an answer from before the grant, renews no lease.",
    section: "Leases",
    async run(stage) {
      const { session } = await stage.session({ leaseMs: LEASE_MS });
      await session.ping(1);
      const grant = session.grant({ tool: "gate", leaseMs: LEASE_MS, pongNumber: 1 });
      await session.next("started");
      const stop = performance.now() + LEASE_MS + LATE_MS;
      for (let number = 2; performance.now() < stop && stage.subject.said("aborted").length === 0; number += 1) {
        await session.ping(number, 1);
        await pause(LEASE_MS / 8);
      }
      await stage.subject.event("aborted", ({ call_id }) => call_id === grant.callId, 100);
    },
  },
  {
    id: "lease-over",
    what: "A grant whose lease is over when it arrives, or that names an answer which was never sent, is declined and not started.",
    section: "Leases",
    async run(stage) {
      const { session } = await stage.session({ leaseMs: LEASE_MS });
      session.grant({ tool: "echo", leaseMs: LEASE_MS, pongNumber: 4_711 });
      await session.next("decline");
      await pause(LEASE_MS + 100);
      session.grant({ tool: "echo", leaseMs: LEASE_MS, pongNumber: 0 });
      await session.next("decline");
      mustEqual((await stage.starts()).length, 0, "starts");
    },
  },
];

export const LIFE_CASES: readonly RunnerCase[] = [
  {
    id: "cut-while-running",
    what: "What runs goes on when the connection breaks, is reported as RUNNING in the next hello, and is not started again.",
    section: "The journal",
    async run(stage) {
      const first = await stage.session();
      const grant = first.session.grant({ tool: "gate" });
      await first.session.next("started");
      stage.wire.cut();
      const second = await stage.session();
      mustEqual(phases(second.hello.held), [`${grant.grantId} RUNNING`], "held");
      second.session.send({ $case: "grant", value: { ...grant, sessionEpoch: second.session.epoch } });
      await second.session.settleFrames();
      stage.subject.tell({ do: "open", call_id: grant.callId });
      mustEqual(resultOf(await second.session.next("receipt")), { opened: true }, "the result");
      mustEqual((await stage.starts()).length, 1, "starts");
    },
  },
  {
    id: "killed-while-running",
    what: "Killed while a handler runs, it reports the grant as OUTCOME_UNKNOWN when it starts again, and does not run it.",
    section: "The journal",
    async run(stage) {
      await stage.needs("durable_journal");
      const first = await stage.session();
      const grant = first.session.grant({ tool: "gate" });
      await first.session.next("started");
      await stage.restart();
      const second = await stage.session();
      mustEqual(second.hello.journalId, first.hello.journalId, "journal_id");
      mustEqual(phases(second.hello.held), [`${grant.grantId} OUTCOME_UNKNOWN`], "held");
      second.session.send({ $case: "grant", value: { ...grant, sessionEpoch: second.session.epoch } });
      await second.session.settleFrames();
      await pause(QUIET_MS);
      mustEqual((await stage.starts()).length, 1, "starts");
    },
  },
  {
    id: "killed-after-finish",
    what: "Killed after a handler ended and before the acknowledgement, it sends the same receipt when it starts again.",
    section: "The journal",
    async run(stage) {
      await stage.needs("durable_journal");
      const first = await stage.session();
      const grant = first.session.grant({ tool: "echo", argumentsJson: '{"n":1}' });
      const receipt = await first.session.next("receipt");
      await stage.restart();
      const second = await stage.session();
      mustEqual(phases(second.hello.held), [`${grant.grantId} FINISHED`], "held");
      const repeat = await second.session.next("receipt");
      mustEqual([repeat.digest, repeat.outcome], [receipt.digest, receipt.outcome], "the repeat");
      mustEqual((await stage.starts()).length, 1, "starts");
    },
  },
  {
    id: "killed-after-refusal",
    what: "What it refused it refuses also after it was killed: never started was said, and stays true.",
    section: "Revoke",
    async run(stage) {
      await stage.needs("durable_journal");
      const first = await stage.session();
      const name = { callId: "call_refused", grantId: "grant_refused", fence: 500 };
      first.session.send({ $case: "revoke", value: { ...name, reason: "taken back" } });
      mustEqual((await first.session.next("revokeAnswer")).phase, GrantPhase.NOT_STARTED, "the phase");
      await stage.restart();
      const second = await stage.session();
      second.session.grant({ tool: "echo", ...name });
      const decline = await second.session.next("decline");
      mustEqual(decline.grantId, name.grantId, "the declined grant");
      mustEqual((await stage.starts()).length, 0, "starts");
    },
  },
  {
    id: "acknowledged-later",
    what: "A finished and acknowledged grant that comes again after a kill is answered with its receipt and not run.",
    section: "The journal",
    async run(stage) {
      await stage.needs("durable_journal");
      const first = await stage.session();
      const grant = first.session.grant({ tool: "echo", argumentsJson: "5" });
      const receipt = await first.session.next("receipt");
      first.session.acknowledge(receipt);
      await first.session.settleFrames();
      await pause(QUIET_MS);
      await stage.restart();
      const second = await stage.session();
      second.session.send({ $case: "grant", value: { ...grant, sessionEpoch: second.session.epoch } });
      mustEqual((await second.session.next("receipt")).digest, receipt.digest, "the digest of the receipt");
      mustEqual((await stage.starts()).length, 1, "starts");
    },
  },
  {
    id: "drain",
    what: "Told to drain it claims nothing more and says so, finishes what runs, waits for the acknowledgement, closes with 1000 and ends.",
    section: "Drain",
    async run(stage) {
      const { session } = await stage.session();
      const grant = session.grant({ tool: "gate" });
      await session.next("started");
      stage.subject.tell({ do: "drain" });
      mustEqual((await session.next("claim")).slots, 0, "slots of the claim");
      await session.next("drain");
      session.grant({ tool: "echo" });
      await session.next("decline");
      await leftOpen(session);
      stage.subject.tell({ do: "open", call_id: grant.callId });
      const receipt = await session.next("receipt");
      await leftOpen(session);
      session.acknowledge(receipt);
      mustEqual((await session.channel.closed).code, 1000, "the close code");
      mustEqual(await stage.subject.exited, 0, "the exit code of the subject");
    },
  },
  {
    id: "broker-drain",
    what: "Told that the broker drains it finishes what runs on this session, then connects elsewhere.",
    section: "Drain",
    async run(stage) {
      const { session } = await stage.session();
      const grant = session.grant({ tool: "gate" });
      await session.next("started");
      session.send({ $case: "drain", value: { reason: "the broker is shutting down", deadlineMs: 30_000 } });
      await leftOpen(session);
      stage.subject.tell({ do: "open", call_id: grant.callId });
      const receipt = await session.next("receipt");
      mustEqual(receipt.grantId, grant.grantId, "the grant of the receipt");
      session.acknowledge(receipt);
      await session.ended;
      const next = await stage.session();
      mustEqual(next.hello.held, [], "held");
    },
  },
];

async function leftOpen(session: FakeSession): Promise<void> {
  const closed = await Promise.race([session.ended.then(() => true), pause(QUIET_MS).then(() => false)]);
  must(!closed, "it closed the session too early");
}

function phases(held: readonly HeldGrant[]): string[] {
  return held.map(({ grantId, phase }) => `${grantId} ${GrantPhase[phase]}`).sort();
}
