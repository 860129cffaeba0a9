/**
 * A runner of the simulated site that is the real SDK: only its transport, its journal and its clock are the world's.
 * What must hold whenever it does something is checked where it does it.
 */
import { createHash } from "node:crypto";
import { type BrokerFrame, type FrameChannel, ReceiptDisposition, type RunnerFrame } from "@toolrunner/proto";
import {
  type Authorization,
  allow,
  applied,
  ConnectError,
  createRunner,
  defineTool,
  forbid,
  notApplied,
  type Reconciliation,
  type Runner,
  SubmissionError,
  type Tool,
  type ToolContext,
  ToolError,
  unknown,
} from "@toolrunner/runner-sdk";
import { SdkJournal } from "./sdk-journal.js";
import { SimProcess, type SimRunnerOptions, type SimSite, type SimTool, type SiteRunner, SUBMISSION_TOOL } from "./simulation.js";

/** What scripted cases say about a handler; by default it follows from the seed. */
export interface HandlerScript {
  /** How long `authorize` takes; 0: it is not slow. */
  readonly admitMs?: number;
  /** How long the handler takes. */
  readonly runMs?: number;
  /** The handler goes on when its signal aborts. */
  readonly deaf?: boolean;
  /** What the call is for is done when the handler ends; by default when it begins. */
  readonly late?: boolean;
  /** It fails with a retryable error, that many times in this process. */
  readonly failures?: number;
}

/** What a runner of the site says of a tool. */
export function declared({ tool, idempotent, reconciles }: SimTool): SimRunnerOptions["tools"][number] {
  return { tool, idempotent, ...(reconciles === true ? { reconciles } : {}) };
}

type Channel = FrameChannel<BrokerFrame, RunnerFrame>;

export class SdkRunner implements SiteRunner {
  process: SimProcess;
  calm = false;
  script: HandlerScript | undefined;
  readonly journal: SdkJournal;
  /** The script takes its id away from it. */
  mayEnd = false;
  /** How it ended for good. */
  ended: string | undefined;
  /** Frames from brokers that wait: scripted cases hold a socket's buffer up. */
  private held: (() => void)[] | undefined;
  private incarnation = 0;
  private readonly running = new Set<string>();
  private runner: Runner | undefined;
  private channel: { sever(): void } | undefined;
  private failed = 0;

  constructor(
    private readonly site: SimSite,
    readonly options: SimRunnerOptions,
  ) {
    // Two processes that go by one id have two journals.
    this.journal = new SdkJournal(`${options.runnerId}_${site.runners.length}`);
    this.process = this.fresh();
  }

  get liveCount(): number {
    return this.running.size;
  }

  get owed(): number {
    return this.journal.owed;
  }

  start(): void {
    this.begin(1);
  }

  crash(journal: "kept" | "lost" = "kept"): void {
    this.process.kill();
    this.sever();
    this.running.clear();
    this.held = undefined;
    if (journal === "lost") this.journal.lose();
    this.process = this.fresh();
    this.begin(this.process.random.between(10, 500));
  }

  sever(): void {
    this.channel?.sever();
    this.channel = undefined;
  }

  /** It has a session, and knows it. */
  get ready(): boolean {
    return this.runner?.state.kind === "ready";
  }

  /** From now on frames from brokers wait, as in the buffer of a socket that nobody reads. */
  hold(): void {
    this.held ??= [];
  }

  /** What waited is read. */
  release(): void {
    const held = this.held ?? [];
    this.held = undefined;
    for (const read of held) read();
  }

  private fresh(): SimProcess {
    this.incarnation += 1;
    return new SimProcess(this.site.world, `${this.options.runnerId}#${this.incarnation}`);
  }

  private begin(delayMs: number): void {
    const { process, site } = this;
    process.clock.schedule(delayMs, () => {
      const runner = this.make(process);
      this.runner = runner;
      runner.start().catch((error: unknown) => site.failed(`${process.name} did not start: ${String(error)}`));
      runner.closed.then(
        ({ kind }) => {
          this.ended = kind;
          if (!process.dead && !this.mayEnd) site.failed(`${process.name} ended as ${kind}`);
        },
        (error: unknown) => site.failed(String(error)),
      );
      for (const callId of this.journal.submissions()) this.settleLater(process, runner, callId);
    });
  }

  private make(process: SimProcess): Runner {
    const { options, site } = this;
    return createRunner({
      transport: {
        name: "simulated",
        carriesCredential: false,
        sha256: (text) => createHash("sha256").update(text).digest("hex"),
        connect: async () => {
          const broker = site.pickBroker();
          if (broker === undefined) throw new ConnectError("no broker takes connections", null);
          const channel = site.connect(process, broker);
          this.channel = channel;
          return this.observed(channel.runner);
        },
      },
      binding: options.binding,
      subject: options.subject,
      runnerId: options.runnerId,
      token: "key",
      concurrency: options.slots,
      journal: this.journal.for(process),
      clock: process.clock,
      random: () => process.random.next(),
      authorize: (ctx) => this.admit(process, ctx.callId),
      tools: options.tools.map((tool) => this.tool(process, tool)),
    });
  }

  private tool(process: SimProcess, { tool: name, idempotent, reconciles }: SimRunnerOptions["tools"][number]): Tool {
    return defineTool({
      name,
      description: "A tool.",
      idempotent,
      cancellable: true,
      resultSemantics: name === SUBMISSION_TOOL ? "submission" : "completion",
      run: (_args, ctx) => this.run(process, name, ctx),
      ...(reconciles === true ? { reconcile: ({ callId }) => this.look(process, callId) } : {}),
    });
  }

  /** The reconcile handler: it looks at one moment, and says so at a later one, or never. */
  private async look(process: SimProcess, callId: string): Promise<Reconciliation> {
    const { random } = process;
    const isSure = this.calm || this.script !== undefined;
    await process.turn(random.between(0.1, 30));
    const isDone = this.site.effects(callId) > 0;
    if (!isSure && random.chance(0.1)) return new Promise(() => {});
    if (!isSure && random.chance(0.1)) throw new Error("the look failed");
    await process.turn(isSure || random.chance(0.7) ? 1 : random.between(1, 5_000));
    if (!isSure && random.chance(0.2)) return unknown();
    return isDone ? applied(callId) : notApplied();
  }

  private async admit(process: SimProcess, callId: string): Promise<Authorization> {
    const { random } = process;
    const scripted = this.script?.admitMs;
    const slow = scripted ?? (!this.calm && random.chance(0.07) ? random.between(0, 6_000) : 0);
    if (slow > 0) await process.turn(slow);
    const isForbidden = this.script === undefined && !this.calm && random.chance(0.01);
    return isForbidden ? forbid(`not ${callId}`) : allow();
  }

  private async run(process: SimProcess, tool: string, ctx: ToolContext): Promise<unknown> {
    const { callId, fence, grant } = ctx;
    const { grantId } = grant;
    const { random } = process;
    if (!this.journal.holds((record) => record.kind === "started" && record.grantId === grantId)) {
      this.site.failed(`G2: the handler of ${callId} begins before its start is in the journal`);
    }
    this.site.started(this, { callId, grantId, fence });
    this.running.add(grantId);
    // What the call is for is done at the beginning, or at the end of a handler that gets so far.
    const isEarly = this.script === undefined ? random.chance(0.5) : this.script.late !== true;
    if (isEarly) this.site.effect(callId);
    try {
      const scripted = this.script?.runMs;
      const runMs = scripted ?? (this.calm ? random.between(1, 20) : random.between(0, random.chance(0.15) ? 15_000 : 600));
      const endsAt = this.site.world.now + runMs;
      while (this.site.world.now < endsAt) {
        await process.turn(Math.min(endsAt - this.site.world.now, random.between(5, 250)) + 0.01);
        if (random.chance(0.3)) ctx.progress({ text: `at ${this.site.world.now}`, percentage: 50 });
        if (ctx.signal.aborted && this.script?.deaf !== true && (this.script !== undefined || random.chance(0.5))) break;
        if (this.calm) break;
      }
      if (this.script?.deaf !== true) ctx.signal.throwIfAborted();
      const fails = this.script === undefined ? !this.calm && random.chance(0.1) : this.failed < (this.script.failures ?? 0);
      if (fails) {
        this.failed += 1;
        throw new ToolError("no_luck", "no luck", { retryable: this.script !== undefined || random.chance(0.7) });
      }
      if (!isEarly) this.site.effect(callId);
      if (tool !== SUBMISSION_TOOL) return callId;
      this.submitted(process, callId);
      return ctx.submit(callId);
    } finally {
      this.running.delete(grantId);
    }
  }

  /** The product settles what it submitted, in this process or in a later one. */
  private submitted(process: SimProcess, callId: string): void {
    if (this.runner !== undefined) this.settleLater(process, this.runner, callId);
  }

  private settleLater(process: SimProcess, runner: Runner, callId: string): void {
    const { random } = process;
    process.clock.schedule(this.calm ? 50 : random.between(20, 6_000), () => {
      runner.settle(callId, { kind: "succeeded", result: callId }).catch((error: unknown) => {
        // Its handle may not be in the journal yet, and the call may have been settled by an earlier process.
        if (!(error instanceof SubmissionError)) this.site.failed(`settle: ${String(error)}`);
        else if (error.code === "submission_unknown") this.settleLater(process, runner, callId);
      });
    });
  }

  /** The channel as the SDK has it, with an eye on what goes in and out. */
  private observed(channel: Channel): Channel {
    const { site, journal } = this;
    const isHeld = () => this.held;
    const { options } = this;
    return {
      transport: channel.transport,
      get bufferedBytes() {
        return channel.bufferedBytes;
      },
      drained: () => channel.drained(),
      closed: channel.closed,
      close: (code, reason) => channel.close(code, reason),
      send: (frame) => {
        if (frame.frame?.$case === "receipt") {
          const { grantId, digest, callId } = frame.frame.value;
          if (
            !journal.holds((record) => record.kind === "finished" && record.receipt.grantId === grantId && record.receipt.digest === digest)
          )
            site.failed(`I7: a receipt of ${callId} is sent that is not in the journal`);
        }
        channel.send(frame);
      },
      async *[Symbol.asyncIterator]() {
        for await (const frame of channel) {
          const held = isHeld();
          if (held !== undefined) await new Promise<void>((resolve) => held.push(resolve));
          if (frame.frame?.$case === "grant") site.granted({ options }, frame.frame.value);
          if (frame.frame?.$case === "receiptAck") {
            const { callId, grantId, disposition } = frame.frame.value;
            const hasReceipt = journal.holds((record) => record.kind === "finished" && record.receipt.grantId === grantId);
            // Of a start whose end nobody knows it says that nobody will ask any more.
            if (hasReceipt || disposition !== ReceiptDisposition.EXPIRED) site.acknowledged(callId, grantId, disposition);
          }
          yield frame;
        }
      },
    };
  }
}
