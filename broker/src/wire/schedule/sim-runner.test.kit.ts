/**
 * A runner that keeps the rules of `docs/protocol.md` to the letter, with a journal that outlives its processes.
 *
 * Invariants: a grant runs at most once, within its lease as the runner counts it (G3), and not after its refusal (G1); from
 * the moment that a hello is composed nothing of an older session starts (G2); a start is in the journal before the handler's
 * first line, and a result before it is first sent (I7).
 */
import type { BrokerFrame, Grant, GrantPhase, HeldGrant, Receipt, RunnerFrame } from "@toolrunner/proto";
import type { SimSite } from "./sim-site.test.kit.js";
import type { SimChannel } from "./sim-channel.test.kit.js";
import { SimProcess } from "./world.test.kit.js";

const NOT_STARTED: GrantPhase = 1;
const RUNNING: GrantPhase = 2;
const OUTCOME_UNKNOWN: GrantPhase = 3;
const FINISHED: GrantPhase = 4;

/** Without a welcome for this long, a dial is given up. */
const WELCOME_MS = 400;

interface JournalEntry {
  readonly callId: string;
  readonly grantId: string;
  readonly fence: number;
  phase: "granted" | "started" | "finished";
  refused: boolean;
  acknowledged: boolean;
  receipt: Receipt | undefined;
  /** The process in which the handler began. */
  startedBy: SimProcess | undefined;
}

interface Execution {
  readonly grant: Grant;
  leaseEndsAt: number;
  listedFrom: number | undefined;
  phase: "admitting" | "starting" | "running" | "over";
  dropped: boolean;
  cancelled: boolean;
  aborted: boolean;
  readonly startDecided: Promise<void>;
  decideStart: () => void;
}

interface Link {
  readonly channel: SimChannel;
  readonly process: SimProcess;
  open: boolean;
  epoch: number;
  pingIntervalMs: number;
  leaseMs: number;
  heardAt: number;
  readonly answers: Map<number, number>;
  readonly receiptsSentAt: Map<string, number>;
}

export interface SimRunnerOptions {
  readonly runnerId: string;
  readonly binding: string;
  readonly subject: string;
  readonly tools: readonly { readonly tool: string; readonly idempotent: boolean }[];
  readonly slots: number;
}

export class SimRunner {
  process: SimProcess;
  /** Set at the end of a schedule: from now on every handler is quick and succeeds. */
  calm = false;
  private incarnation = 0;
  private readonly journal = new Map<string, JournalEntry>();
  private readonly live = new Map<string, Execution>();
  private link: Link | undefined;

  constructor(
    private readonly site: SimSite,
    readonly options: SimRunnerOptions,
  ) {
    this.process = this.fresh();
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
    return [...this.journal.values()].filter((entry) => entry.phase !== "granted" && !entry.acknowledged).length;
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
      receiptsSentAt: new Map(),
    };
    this.link = link;
    const held = this.held(true);
    this.send(link, {
      $case: "hello",
      value: {
        protocolVersions: [1],
        sdkName: "sim",
        sdkVersion: "1",
        runnerId: this.options.runnerId,
        binding: this.options.binding,
        subject: this.options.subject,
        credential: "key",
        journalId: `journal_${this.options.runnerId}`,
        instanceState: undefined,
        slots: this.options.slots,
        held,
        handlers: this.options.tools.map(({ tool, idempotent }) => ({ tool, version: "1", idempotent, cancellable: true, readOnly: false })),
      },
    });
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
      case "receiptAck":
        this.site.acknowledged(frame.value.callId, frame.value.grantId, frame.value.disposition);
        this.mark(frame.value.grantId);
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
        this.mark(grantId);
      }
    }
    for (const entry of this.journal.values()) {
      if (entry.receipt !== undefined && !entry.acknowledged) {
        this.sendReceipt(link, entry.receipt);
      }
    }
    this.watchSilence(link);
  }

  private watchSilence(link: Link): void {
    link.process.clock.schedule(link.pingIntervalMs, () => {
      if (!link.open) {
        return;
      }
      if (this.site.world.now - link.heardAt > 3 * link.pingIntervalMs + 100) {
        link.channel.runner.close(4502);
        return;
      }
      this.watchSilence(link);
    });
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
      this.sendReceipt(link, known.receipt);
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
    if (this.refusedFence(grant.callId) >= grant.fence) {
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
    if (!this.repeatable(grant.tool)) {
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
    let decideStart: () => void = () => undefined;
    const startDecided = new Promise<void>((resolve) => {
      decideStart = resolve;
    });
    const execution: Execution = {
      grant,
      leaseEndsAt: answeredAt + grant.leaseMs,
      listedFrom: undefined,
      phase: "admitting",
      dropped: false,
      cancelled: false,
      aborted: false,
      startDecided,
      decideStart,
    };
    this.live.set(grant.grantId, execution);
    this.run(link.process, execution).catch((error: unknown) => this.site.failed(String(error)));
  }

  private async run(process: SimProcess, execution: Execution): Promise<void> {
    const { world } = this.site;
    const { random } = world;
    const { grant } = execution;
    const { callId, grantId, fence } = grant;
    const entry: JournalEntry = {
      callId,
      grantId,
      fence,
      phase: "granted",
      refused: false,
      acknowledged: false,
      receipt: undefined,
      startedBy: undefined,
    };
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
    await this.finish(process, grant, this.outcome(execution));
    this.live.delete(grantId);
  }

  private outcome(execution: Execution): Receipt["outcome"] {
    const { random } = this.site.world;
    if (execution.cancelled && random.chance(0.7)) {
      return { $case: "cancelled", value: { message: "stopped" } };
    }
    if (!this.calm && random.chance(0.15)) {
      const retryable = random.chance(0.7);
      return { $case: "failed", value: { code: "no_luck", message: "no luck", retryable, retryAfterMs: retryable ? 20 : 0, details: [] } };
    }
    return { $case: "succeeded", value: { resultJson: JSON.stringify(execution.grant.callId) } };
  }

  private async finish(process: SimProcess, grant: Grant, outcome: Receipt["outcome"]): Promise<void> {
    const { callId, grantId, fence, attempt } = grant;
    const digest = [...Buffer.from(`${grantId}${JSON.stringify(outcome)}`).toString("hex")].reverse().join("").padEnd(64, "0").slice(0, 64);
    const at = process.clock.now();
    const receipt: Receipt = { callId, grantId, fence, attempt, digest, startedAtUnixMs: at, finishedAtUnixMs: at, outcome };
    await this.write(process, () => {
      const entry = this.journal.get(grantId);
      this.journal.set(grantId, {
        callId,
        grantId,
        fence,
        refused: entry?.refused ?? false,
        startedBy: entry?.startedBy,
        phase: "finished",
        acknowledged: false,
        receipt,
      });
    });
    if (this.link !== undefined && this.link.epoch > 0) {
      this.sendReceipt(this.link, receipt);
    }
  }

  private answerPing(link: Link, number: number, acknowledged: number): void {
    const { world } = this.site;
    const sentAt = link.answers.get(acknowledged);
    link.answers.set(number, world.now);
    for (const execution of this.live.values()) {
      if (sentAt !== undefined && execution.listedFrom !== undefined && execution.listedFrom <= acknowledged) {
        execution.leaseEndsAt = Math.max(execution.leaseEndsAt, sentAt + link.leaseMs);
      }
      execution.listedFrom ??= number;
      if (world.now >= execution.leaseEndsAt) {
        execution.aborted = true;
      }
    }
    this.send(link, { $case: "pong", value: { number, held: this.held(false) } });
    for (const [grantId, at] of link.receiptsSentAt) {
      const entry = this.journal.get(grantId);
      if (entry?.receipt === undefined || entry.acknowledged) {
        link.receiptsSentAt.delete(grantId);
      } else if (world.now - at > link.leaseMs) {
        this.sendReceipt(link, entry.receipt);
      }
    }
  }

  private held(inHello: boolean): HeldGrant[] {
    const reports: HeldGrant[] = [];
    for (const { grant, phase } of this.live.values()) {
      if (phase !== "over") {
        // Between hellos "not started" promises nothing: it may begin any moment.
        const said = phase === "admitting" && !inHello ? NOT_STARTED : RUNNING;
        reports.push({ callId: grant.callId, grantId: grant.grantId, fence: grant.fence, phase: said });
      }
    }
    for (const entry of this.journal.values()) {
      if (entry.acknowledged || this.live.has(entry.grantId)) {
        continue;
      }
      const { callId, grantId, fence } = entry;
      const phase = this.phaseOf(entry);
      if (phase !== NOT_STARTED || (inHello && entry.refused)) {
        reports.push({ callId, grantId, fence, phase });
      }
    }
    return reports;
  }

  private phaseOf(entry: JournalEntry): GrantPhase {
    if (entry.phase === "finished") {
      return FINISHED;
    }
    if (entry.phase === "granted") {
      return NOT_STARTED;
    }
    return entry.startedBy === this.process ? RUNNING : OUTCOME_UNKNOWN;
  }

  private async revoke(link: Link, name: { readonly callId: string; readonly grantId: string; readonly fence: number }): Promise<void> {
    const affected = [...this.live.values()].filter(({ grant }) => grant.callId === name.callId && grant.fence <= name.fence);
    for (const execution of affected) {
      if (execution.phase === "running") {
        execution.aborted = true;
      } else {
        execution.dropped = true;
      }
    }
    await Promise.all(affected.map(({ startDecided }) => startDecided));
    await this.write(link.process, () => {
      const entry = this.journal.get(name.grantId);
      if (entry === undefined) {
        const { callId, grantId, fence } = name;
        this.journal.set(name.grantId, {
          callId,
          grantId,
          fence,
          phase: "granted",
          refused: true,
          acknowledged: false,
          receipt: undefined,
          startedBy: undefined,
        });
      } else {
        entry.refused = true;
      }
    });
    const entry = this.journal.get(name.grantId);
    if (entry === undefined) {
      return;
    }
    const phase = this.live.has(name.grantId) ? RUNNING : this.phaseOf(entry);
    this.answerRevoke(link, name, phase);
    if (phase === FINISHED && entry.receipt !== undefined) {
      this.sendReceipt(link, entry.receipt);
    }
    if (phase === NOT_STARTED || phase === OUTCOME_UNKNOWN) {
      this.mark(name.grantId);
    }
  }

  private answerRevoke(link: Link, name: { readonly callId: string; readonly grantId: string; readonly fence: number }, phase: GrantPhase): void {
    const { callId, grantId, fence } = name;
    this.send(link, { $case: "revokeAnswer", value: { callId, grantId, fence, journalId: `journal_${this.options.runnerId}`, phase } });
  }

  private refusedFence(callId: string): number {
    let newest = -1;
    for (const entry of this.journal.values()) {
      if (entry.callId === callId && entry.refused) {
        newest = Math.max(newest, entry.fence);
      }
    }
    return newest;
  }

  private repeatable(tool: string): boolean {
    return this.options.tools.some((each) => each.tool === tool && each.idempotent);
  }

  private mark(grantId: string): void {
    const entry = this.journal.get(grantId);
    if (entry !== undefined) {
      entry.acknowledged = true;
    }
  }

  private sendReceipt(link: Link, receipt: Receipt): void {
    link.receiptsSentAt.set(receipt.grantId, this.site.world.now);
    this.send(link, { $case: "receipt", value: receipt });
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
