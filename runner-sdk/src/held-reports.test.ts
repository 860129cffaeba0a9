import { GrantPhase, ReceiptDisposition } from "@toolrunner/proto";
import { afterEach, describe, expect, it } from "vitest";
import { allow, type Journal, memoryJournal } from "./index.js";
import { deferred, makeRunner, serve, stopRunners, until, work } from "./runner.test.kit.js";
import { createFakeBroker } from "./testing.js";

afterEach(stopRunners);

const revoke = (grant: { callId: string; grantId: string; fence: number }) => ({
  $case: "revoke" as const,
  value: { ...grant, reason: "moved" },
});
const nameOf = ({ callId, grantId, fence }: { callId: string; grantId: string; fence: number }) => ({ callId, grantId, fence });

/** A journal whose appends of one kind wait until they are let through. */
function gated(kind: string): { journal: Journal; arrived: Promise<void>; open: () => void } {
  const inner = memoryJournal();
  const gate = deferred();
  const arrived = deferred();
  return {
    arrived: arrived.promise,
    open: () => gate.resolve(),
    journal: {
      ...inner,
      async open(options) {
        const opened = await inner.open(options);
        return {
          journalId: opened.journalId,
          view: opened.view,
          note: (record) => opened.note(record),
          close: () => opened.close(),
          async append(record) {
            if (record.kind === kind) {
              arrived.resolve();
              await gate.promise;
            }
            await opened.append(record);
          },
        };
      },
    },
  };
}

describe("reports", () => {
  it("in a pong list everything that is held, and no longer what was acknowledged or declined", async () => {
    const end = deferred();
    const { session } = await serve({ tools: [work((args) => ((args as { wait?: boolean }).wait ? end.promise : 1))] });
    const held = session.grant({ tool: "work", argumentsJson: '{"wait":true}' });
    const done = session.grant({ tool: "work" });
    session.grant({ tool: "missing" });
    const receipt = await session.next("receipt");
    expect(await session.ping(1)).toEqual([
      { ...nameOf(held), phase: GrantPhase.RUNNING },
      { ...nameOf(done), phase: GrantPhase.FINISHED },
    ]);
    session.acknowledge(receipt);
    expect(await session.ping(2)).toEqual([{ ...nameOf(held), phase: GrantPhase.RUNNING }]);
    end.resolve();
    await session.next("receipt");
  });

  it("in a hello list running and finished grants, and every receipt comes again until it is acknowledged", async () => {
    const end = deferred();
    const broker = createFakeBroker();
    const { session } = await serve({ tools: [work((args) => ((args as { wait?: boolean }).wait ? end.promise : 1))] }, {}, broker);
    const held = session.grant({ tool: "work", argumentsJson: '{"wait":true}' });
    const done = session.grant({ tool: "work" });
    await session.next("receipt");
    session.sever();
    const second = await broker.nextSession();
    const hello = await second.welcome();
    expect(hello.held).toEqual([
      { ...nameOf(held), phase: GrantPhase.RUNNING },
      { ...nameOf(done), phase: GrantPhase.FINISHED },
    ]);
    expect((await second.next("receipt")).grantId).toBe(done.grantId);
    end.resolve();
    const late = await second.next("receipt");
    expect(late.grantId).toBe(held.grantId);
    second.acknowledge(late, ReceiptDisposition.EVIDENCE);
    second.acknowledge(done);
    await second.settleFrames();
    second.sever();
    const third = await broker.nextSession();
    expect((await third.welcome()).held).toEqual([]);
  });

  it("drop what waits for authorize when a hello is composed: refused, reported as not started, never run (G2)", async () => {
    const ask = deferred();
    let ran = false;
    const broker = createFakeBroker();
    const { session, runner } = await serve(
      {
        tools: [
          work(() => {
            ran = true;
          }),
        ],
        authorize: async () => {
          await ask.promise;
          return allow();
        },
      },
      {},
      broker,
    );
    const grant = session.grant({ tool: "work" });
    await session.settleFrames();
    session.sever();
    const second = await broker.nextSession();
    expect((await second.welcome()).held).toEqual([{ ...nameOf(grant), phase: GrantPhase.NOT_STARTED }]);
    ask.resolve();
    second.grant({ ...grant, sessionEpoch: second.epoch });
    expect((await second.next("decline")).grantId).toBe(grant.grantId);
    expect(ran).toBe(false);
    second.sever();
    const third = await broker.nextSession();
    expect((await third.welcome()).held).toEqual([]);
    await until("ready again", () => runner.state.kind === "ready");
  });

  it("wait for a start that is being journaled: the hello says what became of it", async () => {
    const { journal, arrived, open } = gated("started");
    let ran = false;
    const broker = createFakeBroker();
    const { session } = await serve(
      {
        journal,
        tools: [
          work(() => {
            ran = true;
          }),
        ],
      },
      {},
      broker,
    );
    const grant = session.grant({ tool: "work" });
    await arrived;
    session.sever();
    const second = await broker.nextSession();
    open();
    expect((await second.welcome()).held).toEqual([{ ...nameOf(grant), phase: GrantPhase.NOT_STARTED }]);
    expect(ran).toBe(false);
  });

  it("of a second process say what the first left: finished, outcome unknown, not started; and nothing of it is started", async () => {
    const journal = memoryJournal();
    const opened = await journal.open({ clock: { now: Date.now, monotonic: () => performance.now(), schedule: () => ({ cancel() {} }) } });
    const at = Date.now();
    for (const id of ["granted", "started", "finished"]) {
      await opened.append({ kind: "granted", callId: `call_${id}`, grantId: id, fence: 3, attempt: 1, tool: "work", version: "1", at });
    }
    await opened.append({ kind: "started", grantId: "started", at });
    const outcome = { kind: "succeeded" as const, resultJson: "7" };
    const receipt = {
      callId: "call_finished",
      grantId: "finished",
      fence: 3,
      attempt: 1,
      digest: "d",
      startedAtUnixMs: 1,
      finishedAtUnixMs: 2,
      outcome,
    };
    await opened.append({ kind: "finished", receipt, at });
    await opened.close();
    const broker = createFakeBroker();
    let ran = false;
    const { session } = await serve(
      {
        journal,
        tools: [
          work(() => {
            ran = true;
          }),
        ],
      },
      {},
      broker,
    );
    const { held } = await session.hello();
    expect(new Map(held.map(({ grantId, phase }) => [grantId, phase]))).toEqual(
      new Map([
        ["granted", GrantPhase.NOT_STARTED],
        ["started", GrantPhase.OUTCOME_UNKNOWN],
        ["finished", GrantPhase.FINISHED],
      ]),
    );
    expect(await session.next("receipt")).toMatchObject({
      grantId: "finished",
      outcome: { $case: "succeeded", value: { resultJson: "7" } },
    });
    for (const id of ["granted", "started"]) session.grant({ tool: "work", callId: `call_${id}`, grantId: id, fence: 3 });
    expect((await session.next("decline")).grantId).toBe("granted");
    expect(await session.next("revokeAnswer")).toMatchObject({ grantId: "started", phase: GrantPhase.OUTCOME_UNKNOWN });
    expect(ran).toBe(false);
    session.send(revoke({ callId: "call_started", grantId: "started", fence: 3 }));
    expect((await session.next("revokeAnswer")).phase).toBe(GrantPhase.OUTCOME_UNKNOWN);
    session.sever();
    const second = await broker.nextSession();
    // What nobody knows is said in every hello: a reconcile handler may be asked about it, now or when there is one (G4).
    expect((await second.welcome()).held.map(({ grantId }) => grantId)).toEqual(["started", "finished"]);
    expect((await second.ping(1)).map(({ grantId }) => grantId)).toEqual(["finished"]);
    // Until the broker says that nobody will ask.
    second.acknowledge({ callId: "call_started", grantId: "started" }, ReceiptDisposition.EXPIRED);
    await second.settleFrames();
    second.sever();
    const third = await broker.nextSession();
    expect((await third.welcome()).held.map(({ grantId }) => grantId)).toEqual(["finished"]);
  });

  it("are cut to what a frame holds when a journal is full of receipts, and everything is delivered all the same", async () => {
    const journal = memoryJournal();
    const opened = await journal.open({ clock: { now: Date.now, monotonic: () => performance.now(), schedule: () => ({ cancel() {} }) } });
    const count = 20_000;
    for (let index = 0; index < count; index++) {
      const receipt = {
        callId: `call_${index}_${"x".repeat(40)}`,
        grantId: `grant_${index}_${"x".repeat(40)}`,
        fence: 1,
        attempt: 1,
        digest: "d".repeat(64),
        startedAtUnixMs: 1,
        finishedAtUnixMs: 2,
        outcome: { kind: "succeeded" as const, resultJson: '"ok"' },
      };
      await opened.append({ kind: "finished", at: Date.now(), receipt });
    }
    await opened.close();
    const { session, events } = await serve({ journal, tools: [work(() => 1)] });
    await until("all receipts came", () => session.all("receipt").length === count);
    expect((await session.hello()).held.length).toBeLessThan(count);
    expect(events.some(({ event }) => event === "report_cut")).toBe(true);
  });
});

describe("frames that make no sense", () => {
  it("of an unknown kind are answered by frame_unknown and the session goes on", async () => {
    const { session } = await serve({ tools: [work(() => 1)] });
    session.channel.send({ frame: undefined });
    expect(await session.next("protocolFault")).toMatchObject({ code: "frame_unknown" });
    session.grant({ tool: "work" });
    await session.next("receipt");
  });

  it("out of order are answered by frame_invalid and the session goes on", async () => {
    const { runner, broker } = makeRunner({ tools: [work(() => 1)] });
    void runner.start();
    const session = await broker.nextSession();
    await session.hello();
    session.grant({ tool: "work" });
    expect(await session.next("protocolFault")).toMatchObject({ code: "frame_invalid" });
    await session.welcome();
    await session.welcome();
    expect(await session.next("protocolFault")).toMatchObject({ code: "frame_invalid" });
    session.grant({ tool: "work" });
    await session.next("receipt");
    expect(session.all("receipt")).toHaveLength(1);
  });

  it("that acknowledge what was never sent change nothing", async () => {
    const { session, events } = await serve({ tools: [work(() => 1)] });
    session.acknowledge({ callId: "call_none", grantId: "none" });
    await session.settleFrames();
    expect(events.some(({ event }) => event === "acknowledgement_unexpected")).toBe(true);
  });

  it("as ten thousand pings are answered one by one", async () => {
    const { session } = await serve({ tools: [work(() => 1)] });
    for (let number = 1; number <= 10_000; number++) session.send({ $case: "ping", value: { number, acknowledged: number - 1 } });
    await until("all pongs", () => session.all("pong").length === 10_000);
  });
});

describe("definitions", () => {
  it("are sent when the welcome wants them, and only then", async () => {
    const tools = [
      work(() => 1, {
        input: { type: "object", title: "in" },
        output: { type: "number" },
        scopes: ["a"],
        cancellable: true,
        timeoutSeconds: 60,
      }),
    ];
    const { session } = await serve({ tools }, { wantsToolDefinitions: true });
    expect(await session.next("toolDefinitions")).toEqual({
      tools: [
        {
          name: "work",
          version: "1",
          description: "Work.",
          inputSchemaJson: '{"type":"object","title":"in"}',
          outputSchemaJson: '{"type":"number"}',
          readOnly: false,
          idempotent: false,
          cancellable: true,
          timeoutSeconds: 60,
          resultSemantics: "completion",
          maxResultContextBytes: 16_384,
          confirmation: "never",
          scopes: ["a"],
          submissionTimeoutSeconds: 0,
        },
      ],
    });
    const other = await serve({ tools });
    await other.session.settleFrames();
    expect(other.session.all("toolDefinitions")).toEqual([]);
  });
});
