/** What a runner has to do, case by case: the handshake, grants, receipts, revoke and cancel. */
import { CancelLevel, DeclineReason, GrantPhase, type Receipt, ReceiptDisposition } from "@toolrunner/proto";
import type { FakeSession } from "@toolrunner/runner-sdk/testing";
import { type ConformanceCase, must, mustEqual, pause, QUIET_MS, Skipped } from "./run-cases.js";
import { BINDING, patient, RUNNER_SLOTS, RUNNER_TOOLS, type RunnerStage, TOKEN } from "./runner-stage.js";

export type RunnerCase = ConformanceCase<RunnerStage>;

const DIGEST = /^[0-9a-f]{64}$/;

export const HANDSHAKE_CASES: readonly RunnerCase[] = [
  {
    id: "hello",
    what: "The first frame is a hello that says who this is, what it runs and how much it takes.",
    section: "Handshake",
    async run({ wire }) {
      const session = await patient(wire);
      const hello = await session.hello();
      mustEqual(session.frames[0]?.frame?.$case, "hello", "the first frame");
      must(hello.protocolVersions.includes(1), `protocol_versions has no 1: ${hello.protocolVersions.join(", ")}`);
      must(/^[A-Za-z0-9_-]{1,64}$/.test(hello.runnerId), `runner_id ${JSON.stringify(hello.runnerId)} is not 1 to 64 of A-Z a-z 0-9 _ -`);
      mustEqual(hello.binding, BINDING, "binding");
      must(hello.journalId !== "", "journal_id is empty");
      must(session.credential === TOKEN || hello.credential === TOKEN, "the key came neither in `authorization` nor as credential");
      mustEqual(hello.slots, RUNNER_SLOTS, "slots");
      mustEqual(hello.held, [], "held");
      const declared = hello.handlers.map(({ tool, version, idempotent, cancellable, readOnly }) =>
        [tool, version, idempotent, cancellable, readOnly].join(" "),
      );
      const wanted = RUNNER_TOOLS.map((one) => [one.name, one.version, one.idempotent, one.cancellable, one.read_only].join(" "));
      mustEqual([...declared].sort(), [...wanted].sort(), "handlers");
    },
  },
  {
    id: "hello-alone",
    what: "Before the welcome it sends nothing but the hello.",
    section: "Handshake",
    async run({ wire }) {
      const session = await patient(wire);
      await session.hello();
      await pause(QUIET_MS);
      mustEqual(session.frames.length, 1, "frames before the welcome");
    },
  },
  {
    id: "definitions",
    what: "Asked in the welcome it sends the definitions of its tools, and not otherwise.",
    section: "Handshake",
    async run(stage) {
      const { session } = await stage.session({ wantsToolDefinitions: true });
      const { tools } = await session.next("toolDefinitions");
      mustEqual(tools.map(({ name }) => name).sort(), RUNNER_TOOLS.map(({ name }) => name).sort(), "defined tools");
      for (const { name, inputSchemaJson } of tools) {
        must(typeof JSON.parse(inputSchemaJson) === "object", `the input schema of ${name} is not a JSON object`);
      }
      stage.wire.cut();
      const second = (await stage.session()).session;
      await second.settleFrames();
      mustEqual(second.all("toolDefinitions").length, 0, "definitions that nobody asked for");
    },
  },
  {
    id: "refusal",
    what: "A refusal with 4426 ends it: it does not dial again.",
    section: "Close codes",
    async run({ wire }) {
      const session = await patient(wire);
      await session.hello();
      session.send({
        $case: "refusal",
        value: { code: "protocol_version_unsupported", message: "none of them", supportedVersions: [9], retryAfterMs: 0 },
      });
      session.close(4426, "none of them");
      await staysAway(wire.broker);
    },
  },
  {
    id: "superseded",
    what: "Closed with 4409 it does not dial again under its id.",
    section: "Handshake",
    async run(stage) {
      const { session } = await stage.session();
      session.close(4409, "a newer session took over");
      await staysAway(stage.wire.broker);
    },
  },
  {
    id: "redial",
    what: "After a broken connection, and after 4501, it dials again, with the same runner and journal id.",
    section: "Reconnect",
    async run(stage) {
      const first = await stage.session();
      stage.wire.cut();
      const second = await stage.session();
      second.session.close(4501, "draining");
      const third = await stage.session();
      for (const { hello } of [second, third]) {
        mustEqual([hello.runnerId, hello.journalId], [first.hello.runnerId, first.hello.journalId], "runner_id and journal_id");
      }
    },
  },
];

export const GRANT_CASES: readonly RunnerCase[] = [
  {
    id: "call",
    what: "A grant is started and ends with a receipt that has its ids, its attempt, its times and its result; acknowledged, it is not sent again.",
    section: "Receipts",
    async run(stage) {
      const { session } = await stage.session();
      const grant = session.grant({ tool: "echo", argumentsJson: '{"a":[1,"ü",null]}', attempt: 2 });
      const started = await session.next("started");
      mustEqual([started.callId, started.grantId, started.fence], [grant.callId, grant.grantId, grant.fence], "ids of started");
      const receipt = await session.next("receipt");
      mustEqual(
        [receipt.callId, receipt.grantId, receipt.fence, receipt.attempt],
        [grant.callId, grant.grantId, grant.fence, 2],
        "ids of the receipt",
      );
      must(DIGEST.test(receipt.digest), `digest ${JSON.stringify(receipt.digest)} is not 64 lower-case hexadecimal digits`);
      must(receipt.startedAtUnixMs > 0 && receipt.finishedAtUnixMs >= receipt.startedAtUnixMs, "times of start and end");
      mustEqual(resultOf(receipt), { a: [1, "ü", null] }, "the result");
      session.acknowledge(receipt);
      await session.settleFrames();
      stage.wire.cut();
      const again = await stage.session();
      await again.session.settleFrames();
      mustEqual(again.session.all("receipt").length, 0, "receipts after the acknowledgement");
    },
  },
  ...[ReceiptDisposition.SETTLED, ReceiptDisposition.REPEATED, ReceiptDisposition.EVIDENCE, ReceiptDisposition.EXPIRED].map(unacknowledged),
  {
    id: "twice",
    what: "A grant that comes twice is run once: while it runs, and answered with its receipt when it is finished.",
    section: "Claims and grants",
    async run(stage) {
      const { session } = await stage.session();
      const grant = session.grant({ tool: "gate" });
      await session.next("started");
      session.send({ $case: "grant", value: grant });
      await session.settleFrames();
      stage.subject.tell({ do: "open", call_id: grant.callId });
      const receipt = await session.next("receipt");
      session.send({ $case: "grant", value: grant });
      const repeat = await session.next("receipt");
      mustEqual([repeat.grantId, repeat.digest], [receipt.grantId, receipt.digest], "the repeat");
      session.acknowledge(repeat);
      session.send({ $case: "grant", value: grant });
      await session.settleFrames();
      mustEqual((await stage.starts()).length, 1, "starts");
    },
  },
  {
    id: "epoch",
    what: "A grant of another session epoch is declined as UNAVAILABLE and not started.",
    section: "Handshake",
    async run(stage) {
      const { session } = await stage.session();
      await declined(session, { tool: "echo", sessionEpoch: session.epoch + 1 });
      await declined(session, { tool: "echo", sessionEpoch: 0 });
      mustEqual((await stage.starts()).length, 0, "starts");
    },
  },
  {
    id: "handler",
    what: "A grant of a tool, or of a version, that it does not serve is declined as UNAVAILABLE.",
    section: "Claims and grants",
    async run(stage) {
      const { session } = await stage.session();
      await declined(session, { tool: "nothing" });
      await declined(session, { tool: "echo", version: "2" });
      mustEqual((await stage.starts()).length, 0, "starts");
    },
  },
  {
    id: "claim",
    what: "A grant beyond the claim is declined as UNAVAILABLE.",
    section: "Claims and grants",
    async run(stage) {
      const { session } = await stage.session();
      for (let index = 0; index < RUNNER_SLOTS; index += 1) session.grant({ tool: "gate" });
      for (let index = 0; index < RUNNER_SLOTS; index += 1) await session.next("started");
      await declined(session, { tool: "echo" });
      mustEqual((await stage.starts()).length, RUNNER_SLOTS, "starts");
    },
  },
  {
    id: "failure",
    what: "A handler's failure is a receipt with its code, its message and whether to try again.",
    section: "Receipts",
    async run(stage) {
      const { session } = await stage.session();
      const business = await session.call({
        tool: "fail",
        argumentsJson: '{"code":"order_unknown","message":"no such order","retryable":false}',
      });
      mustEqual(failureOf(business), ["order_unknown", "no such order", false], "the failure");
      const passing = await session.call({ tool: "fail", argumentsJson: '{"code":"busy","message":"later","retryable":true}' });
      mustEqual(failureOf(passing), ["busy", "later", true], "the failure");
    },
  },
  {
    id: "too-large",
    what: "A result over the limit of the grant becomes a failure result_too_large, and is not sent.",
    section: "Limits",
    async run(stage) {
      const { session } = await stage.session();
      const receipt = await session.call({ tool: "fill", argumentsJson: '{"bytes":2000}', maxResultBytes: 1_000 });
      mustEqual(failureOf(receipt)[0], "result_too_large", "the code");
      const fits = await session.call({ tool: "fill", argumentsJson: '{"bytes":998}', maxResultBytes: 1_000 });
      mustEqual(JSON.stringify(resultOf(fits)).length, 1_000, "bytes of the result at the limit");
    },
  },
  {
    id: "unknown-frame",
    what: "A frame of a kind that it does not know is answered by protocol_fault with frame_unknown, and the session goes on.",
    section: "Frames",
    async run(stage) {
      const { session } = await stage.session();
      if (stage.wire.sendRaw === undefined) throw new Skipped("frames of an unknown kind are sent over WebSocket only");
      // Field 999 with an empty message, which no version has.
      stage.wire.sendRaw(stage.wire.json ? '{"frameOfTheFuture":{}}' : Uint8Array.from([0xba, 0x3e, 0x00]));
      mustEqual((await session.next("protocolFault")).code, "frame_unknown", "the code");
      mustEqual(resultOf(await session.call({ tool: "echo", argumentsJson: "7" })), 7, "the next call's result");
    },
  },
];

/** Each disposition ends a runner's duty. */
function unacknowledged(disposition: ReceiptDisposition): RunnerCase {
  const name = ReceiptDisposition[disposition].toLowerCase();
  return {
    id: `unacknowledged-${name}`,
    what: `A receipt that was not acknowledged is reported as FINISHED and sent again, with the same digest, until it is answered ${name}.`,
    section: "Receipts",
    async run(stage) {
      const first = await stage.session();
      first.session.grant({ tool: "echo", argumentsJson: "1" });
      const receipt = await first.session.next("receipt");
      stage.wire.cut();
      const second = await stage.session();
      mustEqual(
        second.hello.held.map(({ phase }) => phase),
        [GrantPhase.FINISHED],
        "held",
      );
      const repeat = await second.session.next("receipt");
      mustEqual([repeat.grantId, repeat.digest, repeat.outcome], [receipt.grantId, receipt.digest, receipt.outcome], "the repeat");
      second.session.acknowledge(repeat, disposition);
      await second.session.settleFrames();
      stage.wire.cut();
      const third = await stage.session();
      await third.session.settleFrames();
      mustEqual(third.session.all("receipt").length, 0, "receipts after the acknowledgement");
      mustEqual((await stage.starts()).length, 1, "starts");
    },
  };
}

/** No session for longer than a first redial takes. */
async function staysAway(broker: RunnerStage["wire"]["broker"]): Promise<void> {
  const came = await Promise.race([broker.nextSession().then(() => true), pause(3_000).then(() => false)]).catch(() => false);
  must(!came, "it dialled again");
}

/** A grant that has to be declined as unavailable. */
async function declined(session: FakeSession, given: Parameters<FakeSession["grant"]>[0]): Promise<void> {
  const grant = session.grant(given);
  const decline = await session.next("decline");
  mustEqual([decline.callId, decline.grantId], [grant.callId, grant.grantId], "ids of the decline");
  mustEqual(decline.reason, DeclineReason.UNAVAILABLE, "reason of the decline");
}

/** The result of a receipt that has to be a success. */
export function resultOf({ outcome }: Receipt): unknown {
  must(outcome?.$case === "succeeded", `expected a success, got ${JSON.stringify(outcome)}`);
  return JSON.parse(outcome.value.resultJson);
}

function failureOf({ outcome }: Receipt): readonly [string, string, boolean] {
  must(outcome?.$case === "failed", `expected a failure, got ${JSON.stringify(outcome)}`);
  const { code, message, retryable } = outcome.value;
  return [code, message, retryable];
}

export const CANCEL_CASES: readonly RunnerCase[] = [
  {
    id: "cancel",
    what: "A cancel is answered DELIVERED, reaches the handler, and ends with STOPPED and a cancelled receipt.",
    section: "Cancel",
    async run(stage) {
      const { session } = await stage.session();
      const grant = session.grant({ tool: "gate" });
      await session.next("started");
      session.send({
        $case: "cancel",
        value: { callId: grant.callId, grantId: grant.grantId, fence: grant.fence, reason: "no longer needed" },
      });
      mustEqual((await session.next("cancelAnswer")).level, CancelLevel.DELIVERED, "the first answer");
      await stage.subject.event("aborted", ({ call_id }) => call_id === grant.callId);
      const receipt = await session.next("receipt");
      mustEqual(receipt.outcome?.$case, "cancelled", "the outcome");
      mustEqual((await session.next("cancelAnswer")).level, CancelLevel.STOPPED, "the last answer");
    },
  },
  {
    id: "cancel-ignored",
    what: "A cancel of a handler that cannot be cancelled is answered IGNORED, and the handler is left to run.",
    section: "Cancel",
    async run(stage) {
      const { session } = await stage.session();
      const grant = session.grant({ tool: "hold", version: "2" });
      await session.next("started");
      session.send({ $case: "cancel", value: { callId: grant.callId, grantId: grant.grantId, fence: grant.fence, reason: "" } });
      mustEqual((await session.next("cancelAnswer")).level, CancelLevel.IGNORED, "the answer");
      mustEqual(stage.subject.said("aborted").length, 0, "aborted handlers");
      stage.subject.tell({ do: "open", call_id: grant.callId });
      mustEqual(resultOf(await session.next("receipt")), { opened: true }, "the result");
    },
  },
  {
    id: "revoke-running",
    what: "A revoke of a running grant aborts it, and is answered RUNNING with the journal's id; grants with this fence or an older one are declined from then on.",
    section: "Revoke",
    async run(stage) {
      const { session, hello } = await stage.session();
      const grant = session.grant({ tool: "lookup", fence: 100 });
      await session.next("started");
      revoke(session, grant);
      const answer = await session.next("revokeAnswer");
      mustEqual(
        [answer.callId, answer.grantId, answer.journalId, answer.phase],
        [grant.callId, grant.grantId, hello.journalId, GrantPhase.RUNNING],
        "the answer",
      );
      await stage.subject.event("aborted", ({ call_id }) => call_id === grant.callId);
      await session.next("receipt");
      for (const fence of [99, 100]) await declined(session, { tool: "lookup", callId: grant.callId, grantId: `late_${fence}`, fence });
      const newer = session.grant({ tool: "lookup", callId: grant.callId, grantId: "newer", fence: 101 });
      mustEqual((await session.next("started")).grantId, newer.grantId, "the started grant");
      mustEqual((await stage.starts()).length, 2, "starts");
    },
  },
  {
    id: "revoke-unknown",
    what: "A revoke of a grant that it never saw is answered NOT_STARTED, and the grant is declined if it arrives after all.",
    section: "Revoke",
    async run(stage) {
      const { session, hello } = await stage.session();
      const name = { callId: "call_late", grantId: "grant_late", fence: 50 };
      revoke(session, name);
      const answer = await session.next("revokeAnswer");
      mustEqual([answer.phase, answer.journalId], [GrantPhase.NOT_STARTED, hello.journalId], "the answer");
      await declined(session, { tool: "echo", ...name });
      mustEqual((await stage.starts()).length, 0, "starts");
    },
  },
  {
    id: "revoke-finished",
    what: "A revoke of a finished grant is answered FINISHED, and its receipt is sent again.",
    section: "Revoke",
    async run(stage) {
      const { session } = await stage.session();
      const grant = session.grant({ tool: "echo", argumentsJson: "1" });
      const receipt = await session.next("receipt");
      revoke(session, grant);
      mustEqual((await session.next("revokeAnswer")).phase, GrantPhase.FINISHED, "the phase");
      stage.wire.cut();
      const again = await stage.session();
      mustEqual((await again.session.next("receipt")).digest, receipt.digest, "the digest of the receipt");
      mustEqual((await stage.starts()).length, 1, "starts");
    },
  },
];

function revoke(session: FakeSession, { callId, grantId, fence }: { callId: string; grantId: string; fence: number }): void {
  session.send({ $case: "revoke", value: { callId, grantId, fence, reason: "taken back" } });
}
