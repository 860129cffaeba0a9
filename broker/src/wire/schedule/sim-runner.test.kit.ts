/**
 * A runner that keeps the rules of `docs/protocol.md` to the letter, with a journal that outlives its processes.
 *
 * Invariants: a grant runs at most once, within its lease as the runner counts it (G3), and not after its refusal (G1); from
 * the moment that a hello is composed nothing of an older session starts (G2); a start is in the journal before the handler's
 * first line, and a result before it is first sent (I7).
 */
import { createHash } from "node:crypto";
import type { BrokerFrame, Grant, GrantPhase, HeldGrant, Receipt, RunnerFrame } from "@toolrunner/proto";
import { SimDelivery } from "./sim-delivery.test.kit.js";
import {
  type Execution,
  executionOf,
  helloOf,
  isRepeatable,
  type Link,
  liveReports,
  outcomeOf,
  renewLeases,
  type SimRunnerOptions,
  type SimRunnerSite,
  succeeded,
  watchSilence,
} from "./sim-execution.test.kit.js";
import {
  FINISHED,
  freshEntry,
  type GrantName,
  NOT_STARTED,
  OUTCOME_UNKNOWN,
  phaseOf,
  RUNNING,
  SimJournal,
} from "./sim-journal.test.kit.js";
import { SimReconcile } from "./sim-reconcile.test.kit.js";
import { SimProcess } from "./world.test.kit.js";

/** Disposition of a receipt of no call, and of a start that nobody asks about any more. */
const EXPIRED = 4;
/** Without a welcome for this long, a dial is given up. */
const WELCOME_MS = 400;

export class SimRunner {
  process: SimProcess;
  /** Set at the end of a schedule: from now on every handler is quick and succeeds. */
  calm = false;
  private incarnation = 0;
  private readonly journal = new SimJournal();
  private readonly delivery = new SimDelivery(
    this.journal,
    () => this.site.world.now,
    (link, frame) => this.send(link, frame),
  );
  private readonly live = new Map<string, Execution>();
  private readonly reconciling: SimReconcile;
  private link: Link | undefined;

  constructor(
    private readonly site: SimRunnerSite,
    readonly options: SimRunnerOptions,
  ) {
    this.process = this.fresh();
    const isLive = (callId: string) => [...this.live.values()].some(({ grant }) => grant.callId === callId);
    this.reconciling = new SimReconcile(site, options, this.journal, isLive, (link, frame) => this.send(link, frame));
  }

  start(): void {
    this.dialSoon(1);
  }

  /** The process ends as by `kill -9` and another one starts. */
  crash(): void {
    this.process.kill();
    this.link?.channel.sever();
    this.link = undefined;
    this.live.clear();
    this.process = this.fresh();
    for (const { receipt } of this.journal.values()) {
      if (receipt?.outcome?.$case === "submitted") {
        this.settleLater(this.process, receipt);
      }
    }
    this.dialSoon(this.site.world.random.between(10, 500));
  }

  /** The connection breaks. */
  sever(): void {
    this.link?.channel.sever();
  }

  /** Grants that are not over. */
  get liveCount(): number {
    return this.live.size;
  }

  /** What the journal still reports: receipts that no broker acknowledged, and starts whose end nobody asked about. */
  get owed(): number {
    return this.journal.owed;
  }

  private fresh(): SimProcess {
    this.incarnation += 1;
    return new SimProcess(this.site.world, `${this.options.runnerId}#${this.incarnation}`);
  }

  private dialSoon(delayMs: number): void {
    const { process } = this;
    process.clock.schedule(delayMs, () => {
      this.dial(process).catch((error: unknown) => this.site.failed(`runner ${this.options.runnerId}: ${String(error)}`));
    });
  }

  private async dial(process: SimProcess): Promise<void> {
    const { world } = this.site;
    // G2: from here on nothing of an older session starts.
    for (const execution of this.live.values()) {
      if (execution.phase === "admitting" || execution.phase === "starting") {
        execution.dropped = true;
      }
    }
    await Promise.all([...this.live.values()].map(({ startDecided }) => startDecided));
    for (const entry of this.journal.values()) {
      if (!entry.acknowledged && entry.phase === "granted" && !entry.refused) {
        await this.write(process, () => {
          entry.refused = true;
        });
      }
    }
    const broker = this.site.pickBroker();
    if (broker === undefined) {
      this.dialSoon(world.random.between(20, 200));
      return;
    }
    const channel = this.site.connect(process, broker);
    const link: Link = {
      channel,
      process,
      open: true,
      epoch: 0,
      pingIntervalMs: 0,
      leaseMs: 0,
      heardAt: world.now,
      answers: new Map([[0, world.now]]),
      receiptsSent: new Map(),
    };
    this.link = link;
    const held = this.held(true);
    this.send(link, helloOf(this.options, held));
    process.clock.schedule(WELCOME_MS, () => {
      if (link.open && link.epoch === 0) {
        channel.runner.close(4502);
      }
    });
    for await (const { frame } of channel.runner) {
      link.heardAt = world.now;
      if (frame !== undefined) {
        this.take(link, frame, held);
      }
    }
    link.open = false;
    if (this.process === process && this.link === link) {
      this.link = undefined;
      this.dialSoon(world.random.between(5, 150));
    }
  }

  private take(link: Link, frame: NonNullable<BrokerFrame["frame"]>, held: readonly HeldGrant[]): void {
    switch (frame.$case) {
      case "welcome":
        this.welcomed(link, frame.value, held);
        return;
      case "grant":
        this.grant(link, frame.value);
        return;
      case "ping":
        this.answerPing(link, frame.value.number, frame.value.acknowledged);
        return;
      case "revoke":
        this.revoke(link, frame.value).catch((error: unknown) => this.site.failed(String(error)));
        return;
      case "cancel": {
        const execution = this.live.get(frame.value.grantId);
        const { callId, grantId } = frame.value;
        this.send(link, { $case: "cancelAnswer", value: { callId, grantId, level: execution === undefined ? 3 : 1 } });
        if (execution !== undefined) {
          execution.cancelled = true;
        }
        return;
      }
      case "reconcile":
        this.reconciling.take(link, frame.value, this.calm);
        return;
      case "receiptAck":
        if (frame.value.disposition === EXPIRED && this.journal.forget(frame.value.grantId, link.process)) {
          return;
        }
        this.site.acknowledged(frame.value.callId, frame.value.grantId, frame.value.disposition);
        this.delivery.acknowledged(link, frame.value.grantId);
        return;
      case "refusal":
        this.site.failed(`hello refused: ${frame.value.code} ${frame.value.message}`);
        return;
      case "protocolFault":
        this.site.failed(`frame refused: ${frame.value.code} ${frame.value.message}`);
        return;
      case "drain":
        return;
    }
  }

  private welcomed(
    link: Link,
    welcome: { readonly sessionEpoch: number; readonly pingIntervalMs: number; readonly leaseMs: number },
    held: readonly HeldGrant[],
  ): void {
    link.epoch = welcome.sessionEpoch;
    link.pingIntervalMs = welcome.pingIntervalMs;
    link.leaseMs = welcome.leaseMs;
    const listed = new Set(held.map(({ grantId }) => grantId));
    for (const execution of this.live.values()) {
      execution.listedFrom = listed.has(execution.grant.grantId) ? 0 : undefined;
    }
    for (const { grantId, phase } of held) {
      if (phase === NOT_STARTED) {
        this.journal.mark(grantId);
      }
    }
    this.delivery.deliverAll(link);
    watchSilence(link, this.site.world);
  }

  private grant(link: Link, grant: Grant): void {
    const { world } = this.site;
    if (this.link !== link || !link.open) {
      return;
    }
    this.site.granted(this, grant);
    const known = this.journal.get(grant.grantId);
    if (this.live.has(grant.grantId)) {
      return;
    }
    if (known?.receipt !== undefined) {
      this.delivery.deliver(link, known.receipt);
      return;
    }
    if (known?.phase === "started") {
      this.answerRevoke(link, grant, OUTCOME_UNKNOWN);
      return;
    }
    const decline = (reason: 1 | 2, message: string): void => {
      const { callId, grantId, fence } = grant;
      this.send(link, { $case: "decline", value: { callId, grantId, fence, reason, message } });
    };
    if (grant.sessionEpoch !== link.epoch) {
      decline(1, "another session");
      return;
    }
    if (this.journal.refusedFence(grant.callId) >= grant.fence) {
      decline(1, "refused");
      return;
    }
    if (this.live.size >= this.options.slots) {
      decline(1, "full");
      return;
    }
    const answeredAt = link.answers.get(grant.pongNumber);
    if (answeredAt === undefined || world.now >= answeredAt + grant.leaseMs) {
      decline(1, "the lease is over");
      return;
    }
    if (!isRepeatable(this.options, grant.tool)) {
      for (const sibling of this.journal.values()) {
        if (sibling.callId !== grant.callId) {
          continue;
        }
        if (this.live.has(sibling.grantId)) {
          decline(1, "an earlier grant is still here");
          return;
        }
        if (sibling.receipt !== undefined) {
          this.finish(link.process, grant, sibling.receipt.outcome).catch((error: unknown) => this.site.failed(String(error)));
          return;
        }
      }
    }
    if (!this.calm && world.random.chance(0.06)) {
      decline(world.random.chance(0.15) ? 2 : 1, "the product says so");
      return;
    }
    const execution = executionOf(grant, answeredAt + grant.leaseMs);
    this.live.set(grant.grantId, execution);
    this.run(link.process, execution).catch((error: unknown) => this.site.failed(String(error)));
  }

  private async run(process: SimProcess, execution: Execution): Promise<void> {
    const { world } = this.site;
    const { random } = world;
    const { grant } = execution;
    const { callId, grantId, fence } = grant;
    const entry = freshEntry(grant);
    this.journal.set(grantId, entry);
    const obstructed = (): boolean => execution.dropped || execution.aborted || world.now >= execution.leaseEndsAt;
    const admittedAt = world.now + (random.chance(0.05) && !this.calm ? random.between(0, 2_000) : random.between(0.1, 5));
    while (world.now < admittedAt && !obstructed()) {
      await process.turn(Math.min(admittedAt - world.now, 20) + 0.01);
    }
    if (!obstructed()) {
      execution.phase = "starting";
      await this.write(process, () => {
        entry.phase = "started";
        entry.startedBy = process;
      });
    }
    if (obstructed()) {
      await this.write(process, () => {
        entry.refused = true;
        entry.phase = "granted";
      });
      execution.phase = "over";
      this.live.delete(grantId);
      execution.decideStart();
      if (!execution.dropped && this.link !== undefined) {
        this.send(this.link, { $case: "decline", value: { callId, grantId, fence, reason: 1, message: "too late" } });
        entry.acknowledged = true;
      }
      return;
    }
    execution.phase = "running";
    execution.decideStart();
    this.site.started(this, grant);
    this.tell({ $case: "started", value: { callId, grantId, fence, atUnixMs: process.clock.now() } });
    const isEarly = random.chance(0.5);
    if (isEarly) {
      this.site.effect(callId);
    }
    const endsAt = world.now + (this.calm ? random.between(1, 20) : random.chance(0.1) ? random.between(0, 6_000) : random.between(0, 400));
    while (world.now < endsAt && !execution.cancelled) {
      await process.turn(Math.min(endsAt - world.now, random.between(5, 100)) + 0.01);
      if (random.chance(0.3)) {
        this.tell({ $case: "progress", value: { callId, grantId, fence, text: `at ${world.now}`, percentage: 50, dataJson: "" } });
      }
      if (execution.aborted && random.chance(0.5)) {
        break;
      }
    }
    const outcome = outcomeOf(execution, this.site.world, this.calm);
    if (!isEarly && (outcome?.$case === "succeeded" || outcome?.$case === "submitted")) {
      this.site.effect(callId);
    }
    await this.finish(process, grant, outcome);
    this.live.delete(grantId);
  }

  private async finish(process: SimProcess, grant: GrantName & { readonly attempt: number }, outcome: Receipt["outcome"]): Promise<void> {
    const { callId, grantId, fence, attempt } = grant;
    const digest = createHash("sha256")
      .update(JSON.stringify([grantId, outcome]))
      .digest("hex");
    const at = process.clock.now();
    const receipt: Receipt = { callId, grantId, fence, attempt, digest, startedAtUnixMs: at, finishedAtUnixMs: at, outcome };
    const isSubmitted = outcome?.$case === "submitted";
    await this.write(process, () => {
      this.journal.finish(receipt);
      if (isSubmitted && process.dead) {
        // The process that came after it did not find the handle yet when it looked.
        this.settleLater(this.process, receipt);
      }
    });
    if (this.link !== undefined && this.link.epoch > 0) {
      this.delivery.deliver(this.link, receipt);
    }
    if (isSubmitted) {
      this.settleLater(process, receipt);
    }
  }

  /** The product settles what it submitted, in this process or in a later one. */
  private settleLater(process: SimProcess, submitted: Receipt): void {
    const { random } = this.site.world;
    const delayMs = this.calm || random.chance(0.3) ? random.between(0, 50) : random.between(0, 3_000);
    process.clock.schedule(delayMs, () => {
      this.finish(process, submitted, succeeded(submitted.callId)).catch((error: unknown) => this.site.failed(String(error)));
    });
  }

  private answerPing(link: Link, number: number, acknowledged: number): void {
    const { world } = this.site;
    const sentAt = link.answers.get(acknowledged);
    link.answers.set(number, world.now);
    renewLeases(this.live.values(), link, { number, acknowledged, sentAt, now: world.now });
    this.send(link, { $case: "pong", value: { number, held: this.held(false) } });
    this.delivery.deliverOverdue(link);
  }

  private held(inHello: boolean): HeldGrant[] {
    return [...liveReports(this.live.values(), inHello), ...this.journal.reports(this.process, this.live, inHello)];
  }

  private async revoke(link: Link, name: GrantName): Promise<void> {
    const affected = [...this.live.values()].filter(({ grant }) => grant.callId === name.callId && grant.fence <= name.fence);
    for (const execution of affected) {
      if (execution.phase === "running") {
        execution.aborted = true;
      } else {
        execution.dropped = true;
      }
    }
    await Promise.all(affected.map(({ startDecided }) => startDecided));
    await this.write(link.process, () => this.journal.refuse(name));
    const entry = this.journal.get(name.grantId);
    if (entry === undefined) {
      return;
    }
    const phase = this.live.has(name.grantId) ? RUNNING : phaseOf(entry, this.process);
    this.answerRevoke(link, name, phase);
    if (phase === FINISHED && entry.receipt !== undefined) {
      this.delivery.deliver(link, entry.receipt);
    }
    entry.toldUnknown ||= phase === OUTCOME_UNKNOWN;
    if (phase === NOT_STARTED) {
      this.journal.mark(name.grantId);
    }
  }

  private answerRevoke(link: Link, name: GrantName, phase: GrantPhase): void {
    const { callId, grantId, fence } = name;
    this.send(link, { $case: "revokeAnswer", value: { callId, grantId, fence, journalId: `journal_${this.options.runnerId}`, phase } });
  }

  private tell(frame: RunnerFrame["frame"]): void {
    if (this.link !== undefined && this.link.epoch > 0) {
      this.send(this.link, frame);
    }
  }

  private send(link: Link, frame: RunnerFrame["frame"]): void {
    link.channel.runner.send({ frame });
  }

  /** A durable write: it happens also when the process dies meanwhile. */
  private async write(process: SimProcess, record: () => void): Promise<void> {
    await this.site.world.sleep(this.site.world.random.between(0.1, 4));
    record();
    await process.turn(0);
  }
}
