/** What a simulated runner keeps in memory: the calls that it runs, and its connection. */
import type { Grant, HeldGrant, Receipt, RunnerFrame } from "@toolrunner/proto";
import type { SimChannel } from "./sim-channel.test.kit.js";
import { NOT_STARTED, RUNNING } from "./sim-journal.test.kit.js";
import type { SimProcess, World } from "./world.test.kit.js";

export interface Execution {
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

/** A grant that was just taken. */
export function executionOf(grant: Grant, leaseEndsAt: number): Execution {
  let decideStart: () => void = () => undefined;
  const startDecided = new Promise<void>((resolve) => {
    decideStart = resolve;
  });
  return {
    grant,
    leaseEndsAt,
    listedFrom: undefined,
    phase: "admitting",
    dropped: false,
    cancelled: false,
    aborted: false,
    startDecided,
    decideStart,
  };
}

export interface Link {
  readonly channel: SimChannel;
  readonly process: SimProcess;
  open: boolean;
  epoch: number;
  pingIntervalMs: number;
  leaseMs: number;
  heardAt: number;
  readonly answers: Map<number, number>;
  /** By grant: receipts that were sent and not answered, oldest first, and when the newest was sent. */
  readonly receiptsSent: Map<string, { readonly digests: string[]; readonly at: number }>;
}

/** Its handler ends with a handle; the result comes later. */
export const SUBMISSION_TOOL = "later";

export interface SimRunnerOptions {
  readonly runnerId: string;
  readonly binding: string;
  readonly subject: string;
  readonly tools: readonly { readonly tool: string; readonly idempotent: boolean; readonly reconciles?: true }[];
  readonly slots: number;
}

/** What a runner needs of the site it lives on. */
export interface SimRunnerSite<Broker = unknown> {
  readonly world: World;
  pickBroker(): Broker | undefined;
  connect(runner: SimProcess, broker: Broker): SimChannel;
  granted(runner: { readonly options: SimRunnerOptions }, grant: Grant): void;
  started(runner: { readonly options: SimRunnerOptions }, grant: Grant): void;
  /** What the handler does to the world: to be done once. */
  effect(callId: string): void;
  /** How often it was done. */
  effects(callId: string): number;
  acknowledged(callId: string, grantId: string, disposition: number): void;
  failed(what: string): void;
}

export function helloOf(options: SimRunnerOptions, held: readonly HeldGrant[]): RunnerFrame["frame"] {
  return {
    $case: "hello",
    value: {
      protocolVersions: [1],
      sdkName: "sim",
      sdkVersion: "1",
      runnerId: options.runnerId,
      binding: options.binding,
      subject: options.subject,
      credential: "key",
      journalId: `journal_${options.runnerId}`,
      instanceState: undefined,
      slots: options.slots,
      held: [...held],
      renewsCredentials: false,
      handlers: options.tools.map(({ tool, idempotent, reconciles = false }) => ({
        tool,
        version: "1",
        idempotent,
        cancellable: true,
        readOnly: false,
        reconciles,
      })),
    },
  };
}

/** Closes a connection on which nothing was heard for longer than three pings. */
export function watchSilence(link: Link, world: World): void {
  link.process.clock.schedule(link.pingIntervalMs, () => {
    if (!link.open) {
      return;
    }
    if (world.now - link.heardAt > 3 * link.pingIntervalMs + 100) {
      link.channel.runner.close(4502);
      return;
    }
    watchSilence(link, world);
  });
}

/** How a handler ends: by chance, and well where the schedule is `calm`. */
export function outcomeOf(execution: Execution, { random }: World, calm: boolean): Receipt["outcome"] {
  if (execution.cancelled && random.chance(0.7)) {
    return { $case: "cancelled", value: { message: "stopped" } };
  }
  if (!calm && random.chance(0.15)) {
    const retryable = random.chance(0.7);
    return { $case: "failed", value: { code: "no_luck", message: "no luck", retryable, retryAfterMs: retryable ? 20 : 0, details: [] } };
  }
  if (execution.grant.tool === SUBMISSION_TOOL) {
    return { $case: "submitted", value: { handleJson: JSON.stringify(execution.grant.callId) } };
  }
  return succeeded(execution.grant.callId);
}

export function succeeded(callId: string): Receipt["outcome"] {
  return { $case: "succeeded", value: { resultJson: JSON.stringify(callId), chunks: undefined } };
}

/** G3: a lease counts from when the answer was sent that the broker says it has; past it, what runs is aborted. */
export function renewLeases(
  live: Iterable<Execution>,
  link: Link,
  ping: { readonly number: number; readonly acknowledged: number; readonly sentAt: number | undefined; readonly now: number },
): void {
  for (const execution of live) {
    if (ping.sentAt !== undefined && execution.listedFrom !== undefined && execution.listedFrom <= ping.acknowledged) {
      execution.leaseEndsAt = Math.max(execution.leaseEndsAt, ping.sentAt + link.leaseMs);
    }
    execution.listedFrom ??= ping.number;
    if (ping.now >= execution.leaseEndsAt) {
      execution.aborted = true;
    }
  }
}

export function isRepeatable({ tools }: SimRunnerOptions, tool: string): boolean {
  return tools.some((each) => each.tool === tool && each.idempotent);
}

/** What runs, as a hello or a pong lists it. */
export function liveReports(live: Iterable<Execution>, inHello: boolean): HeldGrant[] {
  const reports: HeldGrant[] = [];
  for (const { grant, phase } of live) {
    if (phase !== "over") {
      // Between hellos "not started" promises nothing: it may begin any moment.
      const said = phase === "admitting" && !inHello ? NOT_STARTED : RUNNING;
      reports.push({ callId: grant.callId, grantId: grant.grantId, fence: grant.fence, phase: said });
    }
  }
  return reports;
}
