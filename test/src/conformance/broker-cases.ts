/** What a broker has to do, case by case, as a runner sees it. */
import { CancelLevel, DeclineReason, type Grant, GrantPhase, ReceiptDisposition } from "@toolrunner/proto";
import type { BrokerStage } from "./broker-stage.js";
import { type ConformanceCase, must, mustEqual, pause, QUIET_MS } from "./run-cases.js";
import { helloOf, type ScriptedRunner } from "./scripted-runner.js";

export type BrokerCase = ConformanceCase<BrokerStage>;

const nameOf = ({ callId, grantId, fence }: Grant) => ({ callId, grantId, fence });

export const BROKER_CASES: readonly BrokerCase[] = [
  {
    id: "welcome",
    what: "A hello is answered by a welcome with version, epoch, intervals, limits and the broker's time.",
    section: "Handshake",
    async run(stage) {
      const welcome = await (await stage.connect()).greet();
      mustEqual(welcome.protocolVersion, 1, "protocol_version");
      must(welcome.sessionEpoch > 0 && welcome.brokerId !== "", "session_epoch and broker_id");
      must(welcome.leaseMs > welcome.pingIntervalMs && welcome.pingIntervalMs > 0, "lease_ms has to be longer than ping_interval_ms");
      must(Math.abs(welcome.serverTimeUnixMs - Date.now()) < 60_000, "server_time_unix_ms is not the time");
      must((welcome.limits?.frameBytes ?? 0) > 0 && (welcome.limits?.slots ?? 0) > 0, "limits");
    },
  },
  {
    id: "credential-in-hello",
    what: "A key that could not come in a header comes in the hello; a wrong one is refused and closed with 4401.",
    section: "Credentials",
    async run(stage) {
      await (await stage.connect(null)).greet({ credential: stage.token });
      const wrong = await stage.connect(null);
      wrong.send({ $case: "hello", value: helloOf({ credential: "wrong" }) });
      mustEqual((await wrong.next("refusal")).code, "credential_invalid", "the code");
      mustEqual((await wrong.closed).code, 4401, "the close code");
    },
  },
  {
    id: "version",
    what: "A runner that shares no version with it is refused and closed with 4426.",
    section: "Handshake",
    async run(stage) {
      const runner = await stage.connect();
      runner.send({ $case: "hello", value: helloOf({ protocolVersions: [4_711] }) });
      const refusal = await runner.next("refusal");
      mustEqual([refusal.code, refusal.supportedVersions.includes(1)], ["protocol_version_unsupported", true], "the refusal");
      mustEqual((await runner.closed).code, 4426, "the close code");
    },
  },
  {
    id: "hello-first",
    what: "A frame before the hello, and a second hello, end the session with 4400.",
    section: "Handshake",
    async run(stage) {
      const early = await stage.connect();
      early.send({ $case: "claim", value: { slots: 1 } });
      mustEqual((await early.closed).code, 4400, "the close code after an early frame");
      const twice = await stage.runner();
      twice.send({ $case: "hello", value: helloOf() });
      mustEqual((await twice.closed).code, 4400, "the close code after a second hello");
    },
  },
  {
    id: "superseded",
    what: "A new session of a runner id has a higher epoch and closes the older one: with 4409 when it has another journal, with 4500 when it is the same runner's.",
    section: "Handshake",
    async run(stage) {
      const older = await stage.connect();
      const first = await older.greet();
      const newer = await stage.connect();
      const second = await newer.greet({ journalId: "jrn_other" });
      must(second.sessionEpoch > first.sessionEpoch, "the epoch did not rise");
      mustEqual((await older.closed).code, 4409, "the close code for another journal");
      await (await stage.connect()).greet({ journalId: "jrn_other" });
      mustEqual((await newer.closed).code, 4500, "the close code for the same journal");
    },
  },
  {
    id: "call",
    what: "A call is granted with its arguments, deadline and lease for this epoch; its receipt settles it, and is answered the same again.",
    section: "Receipts",
    async run(stage) {
      const runner = await stage.connect();
      const { sessionEpoch } = await runner.greet();
      const { id } = await stage.call("echo", { a: "ü" });
      const grant = await runner.next("grant");
      mustEqual(
        [grant.callId, grant.tool, grant.version, grant.attempt, grant.sessionEpoch],
        [id, "echo", "1", 1, sessionEpoch],
        "the grant",
      );
      mustEqual(JSON.parse(grant.argumentsJson), { a: "ü" }, "the arguments");
      must(
        grant.remainingMs > 0 && grant.leaseMs > 0 && grant.idempotencyKey !== "" && grant.fence > 0,
        "times, key and fence of the grant",
      );
      runner.succeed(grant, '{"done":true}');
      mustEqual((await runner.next("receiptAck")).disposition, ReceiptDisposition.SETTLED, "the first answer");
      const settled = await stage.answer(id);
      mustEqual([settled.state, settled.result], ["succeeded", { done: true }], "the call");
      runner.succeed(grant, '{"done":true}');
      mustEqual((await runner.next("receiptAck")).disposition, ReceiptDisposition.REPEATED, "the answer to a repeat");
      runner.succeed(grant, '{"done":false}', "b".repeat(64));
      mustEqual((await runner.next("receiptAck")).disposition, ReceiptDisposition.EVIDENCE, "the answer to another receipt");
      mustEqual((await stage.answer(id)).result, { done: true }, "the result after that");
    },
  },
  {
    id: "receipt-of-nothing",
    what: "A receipt of a call that it does not know is answered EXPIRED; one that is not well-formed by protocol_fault, and no acknowledgement.",
    section: "Receipts",
    async run(stage) {
      const runner = await stage.runner();
      const grant = {
        callId: "call_aaaaaaaaaaaaaaaaaaaaaaaaaa",
        grantId: "entry_aaaaaaaaaaaaaaaaaaaaaaaaaa",
        fence: 1,
        attempt: 1,
      } as Grant;
      runner.succeed(grant, "1");
      mustEqual((await runner.next("receiptAck")).disposition, ReceiptDisposition.EXPIRED, "the answer");
      runner.succeed(grant, "not JSON");
      mustEqual((await runner.next("protocolFault")).code, "frame_invalid", "the code");
      await pause(QUIET_MS);
      mustEqual(runner.all("receiptAck").length, 1, "acknowledgements");
    },
  },
  {
    id: "claim",
    what: "No more is granted than was claimed; a receipt, or a larger claim, lets the next one through.",
    section: "Claims and grants",
    async run(stage) {
      const runner = await stage.runner({ slots: 1 });
      const ids = [await stage.call("echo"), await stage.call("echo"), await stage.call("echo")].map(({ id }) => id);
      const first = await runner.next("grant");
      await pause(QUIET_MS);
      mustEqual(runner.all("grant").length, 1, "grants for one slot");
      runner.succeed(first, "1");
      await runner.next("grant");
      runner.send({ $case: "claim", value: { slots: 2 } });
      await runner.next("grant");
      mustEqual(
        runner
          .all("grant")
          .map(({ callId }) => callId)
          .sort(),
        [...ids].sort(),
        "the granted calls",
      );
    },
  },
  {
    id: "decline",
    what: "Declined as UNAVAILABLE the call is granted again, with a higher fence and the same attempt; as FORBIDDEN it is denied.",
    section: "Claims and grants",
    async run(stage) {
      const runner = await stage.runner();
      const { id } = await stage.call("echo");
      const first = await runner.next("grant");
      runner.send({ $case: "decline", value: { ...nameOf(first), reason: DeclineReason.UNAVAILABLE, message: "busy" } });
      const second = await runner.next("grant");
      mustEqual([second.callId, second.attempt], [id, 1], "the second grant");
      must(second.fence > first.fence && second.grantId !== first.grantId, "the fence did not rise");
      runner.send({ $case: "decline", value: { ...nameOf(second), reason: DeclineReason.FORBIDDEN, message: "not this agent" } });
      const denied = await stage.answer(id);
      mustEqual([denied.state, denied.error?.code], ["denied", "forbidden"], "the call");
    },
  },
  {
    id: "outcome-unknown",
    what: "What a killed runner reports as OUTCOME_UNKNOWN is tried again when that is safe, and needs reconciliation when it is not.",
    section: "Pings",
    async run(stage) {
      const before = await stage.runner();
      const unsafe = await stage.call("gate");
      const safe = await stage.call("lookup");
      const grants = [await before.next("grant"), await before.next("grant")];
      for (const grant of grants) before.send({ $case: "started", value: { ...nameOf(grant), atUnixMs: Date.now() } });
      before.cut();
      const held = grants.map((grant) => ({ ...nameOf(grant), phase: GrantPhase.OUTCOME_UNKNOWN }));
      const after = await stage.runner({ held });
      const again = await after.next("grant");
      mustEqual([again.callId, again.attempt], [safe.id, 2], "the grant");
      mustEqual((await stage.answer(unsafe.id)).state, "needs_reconciliation", "the call that is not safe to repeat");
      await pause(QUIET_MS);
      mustEqual(after.all("grant").length, 1, "grants");
    },
  },
  {
    id: "never-started",
    what: "What a runner reports as NOT_STARTED, in a hello from the journal that took the grant, is granted again without using up an attempt.",
    section: "Pings",
    async run(stage) {
      const before = await stage.runner();
      const { id } = await stage.call("gate");
      const grant = await before.next("grant");
      before.cut();
      const after = await stage.runner({ held: [{ ...nameOf(grant), phase: GrantPhase.NOT_STARTED }] });
      const again = await after.next("grant");
      mustEqual([again.callId, again.attempt, again.fence > grant.fence], [id, 1, true], "the grant");
    },
  },
  {
    id: "other-journal",
    what: "NOT_STARTED from another journal than the one that took the grant is not believed.",
    section: "Revoke",
    async run(stage) {
      const before = await stage.runner();
      const { id } = await stage.call("gate");
      const grant = await before.next("grant");
      before.cut();
      const after = await stage.runner({ journalId: "jrn_other", held: [{ ...nameOf(grant), phase: GrantPhase.NOT_STARTED }] });
      await pause(2 * QUIET_MS);
      mustEqual(after.all("grant").length, 0, "grants");
      mustEqual((await stage.answer(id, 0)).state, "running", "the state of the call");
    },
  },
  {
    id: "unlisted-grant",
    what: "A grant that an answer to a later ping does not list is asked about with revoke; NOT_STARTED from its journal frees the call.",
    section: "Pings",
    async run(stage) {
      const runner = await stage.runner();
      const { id } = await stage.call("gate");
      const grant = await runner.next("grant");
      await runner.next("ping", 15_000).then(({ number }) => runner.send({ $case: "pong", value: { number, held: [] } }));
      const revoke = await runner.next("revoke", 15_000);
      mustEqual([revoke.callId, revoke.grantId], [grant.callId, grant.grantId], "the revoke");
      const journalId = helloOf().journalId;
      runner.send({ $case: "revokeAnswer", value: { ...nameOf(grant), journalId, phase: GrantPhase.NOT_STARTED } });
      mustEqual((await runner.next("grant", 20_000)).callId, id, "the call of the next grant");
    },
  },
  {
    id: "stale-grant",
    what: "A grant that is held and counts no longer is revoked.",
    section: "Pings",
    async run(stage) {
      const runner = await stage.runner();
      const stale = { callId: "call_aaaaaaaaaaaaaaaaaaaaaaaaaa", grantId: "entry_aaaaaaaaaaaaaaaaaaaaaaaaaa", fence: 1 };
      await answerPing(runner, [{ ...stale, phase: GrantPhase.RUNNING }]);
      mustEqual((await runner.next("revoke")).grantId, stale.grantId, "the revoke");
    },
  },
  {
    id: "cancel",
    what: "A cancel of a running call is pushed to its runner, and settles by the receipt.",
    section: "Cancel",
    async run(stage) {
      const runner = await stage.runner();
      const { id } = await stage.call("gate");
      const grant = await runner.next("grant");
      mustEqual(await stage.cancel(id), 202, "the status of the cancel");
      const cancel = await runner.next("cancel");
      mustEqual([cancel.callId, cancel.grantId], [id, grant.grantId], "the cancel");
      runner.send({ $case: "cancelAnswer", value: { callId: id, grantId: grant.grantId, level: CancelLevel.DELIVERED } });
      mustEqual((await stage.answer(id, 0)).state, "running", "the state before the receipt");
      const { fence, attempt } = grant;
      const times = { startedAtUnixMs: Date.now(), finishedAtUnixMs: Date.now() };
      runner.send({
        $case: "receipt",
        value: {
          callId: id,
          grantId: grant.grantId,
          fence,
          attempt,
          digest: "c".repeat(64),
          ...times,
          outcome: { $case: "cancelled", value: { message: "stopped" } },
        },
      });
      mustEqual((await stage.answer(id)).state, "cancelled", "the state");
    },
  },
  {
    id: "unknown-frame",
    what: "A frame of a kind that it does not know is answered by protocol_fault with frame_unknown, and the session goes on.",
    section: "Frames",
    async run(stage) {
      const runner = await stage.runner();
      runner.sendRaw(stage.encoding === "json" ? '{"frameOfTheFuture":{}}' : Uint8Array.from([0xba, 0x3e, 0x00]));
      mustEqual((await runner.next("protocolFault")).code, "frame_unknown", "the code");
      await stage.call("echo");
      await runner.next("grant");
    },
  },
  {
    id: "runner-drain",
    what: "A runner that claims nothing and drains gets no more grants; what it runs still settles.",
    section: "Drain",
    async run(stage) {
      const runner = await stage.runner();
      const { id } = await stage.call("gate");
      const grant = await runner.next("grant");
      runner.send({ $case: "claim", value: { slots: 0 } });
      runner.send({ $case: "drain", value: { reason: "restart", deadlineMs: 30_000 } });
      await stage.call("echo");
      await pause(QUIET_MS);
      mustEqual(runner.all("grant").length, 1, "grants");
      runner.succeed(grant, "1");
      mustEqual((await runner.next("receiptAck")).disposition, ReceiptDisposition.SETTLED, "the answer to the receipt");
      mustEqual((await stage.answer(id)).state, "succeeded", "the state");
    },
  },
];

async function answerPing(runner: ScriptedRunner, held: readonly { callId: string; grantId: string; fence: number; phase: GrantPhase }[]) {
  const { number } = await runner.next("ping", 15_000);
  runner.send({ $case: "pong", value: { number, held: [...held] } });
}
