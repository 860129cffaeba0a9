/** For tests of one call's driver: a ledger in virtual time that fails as it is told, and effects that are only noted. */
import { silentLog } from "../app/logs.js";
import type { Grant } from "../domain/call/call-state.js";
import type { CallEntry } from "../domain/call/entries.js";
import { decodeEntry, encodeEntry } from "../domain/call/entry-codec.js";
import { type AppendOutcome, type Ledger, LedgerError } from "../domain/ports/ledger.js";
import { createMemoryLedger, createMemoryLedgerStore, type MemoryLedgerStore } from "../ledger/memory/memory-ledger.js";
import { acceptedEntry, SAMPLE_START_MS, sampleHolder, sampleRequest } from "../testing/sample-call.js";
import { CallDriver } from "./call-driver.js";
import type { DrivenCall, DriverContext } from "./driver-context.js";
import { DEFAULT_FIGURES, type Figures } from "./figures.js";
import { createPerformer, type Performer } from "./perform.js";
import { LOCAL_CLAIM, type Placement } from "./placement.js";
import { ReconcileAsks } from "./reconcile-asks.js";
import { Random, SimProcess, simIds, World } from "./schedule/world.test.kit.js";
import type { SessionRef } from "./session.js";
import { createTimerWheel } from "./timer-wheel.js";

export const CALL_ID = "call_sample";

export interface DriverStage {
  readonly world: World;
  readonly process: SimProcess;
  readonly store: MemoryLedgerStore;
  /** Changes what the driver's appends come to: return undefined to let them through. */
  faults: { append: ((entry: CallEntry) => Promise<AppendOutcome> | undefined) | undefined };
  /** What effects were asked for, in order. */
  readonly effects: string[];
  /** Whether a runner's present session is there to be asked. */
  holder: { isThere: boolean; reconciles: boolean; session: SessionRef | undefined };
  readonly reconcileAsks: ReconcileAsks;
  readonly perform: Performer;
  readonly context: DriverContext;
  driver(brokerId?: string): CallDriver;
  /** Another broker's entry. */
  foreign(entry: CallEntry): Promise<void>;
  /** A runner's slot, and whether it is reserved. */
  placement(): Placement & { readonly reserved: boolean };
  kinds(): string[];
  /** Lets `ms` go by. */
  pass(ms: number): Promise<void>;
  /** Lets time go by until `work` is over. */
  until<T>(work: Promise<T>): Promise<T>;
}

export function driverStage(figures: Partial<Figures> = {}): DriverStage {
  const world = new World(new Random(7));
  const process = new SimProcess(world, "broker_a");
  const store = createMemoryLedgerStore();
  const inner = createMemoryLedger({ store, turn: () => Promise.resolve() });
  const faults: DriverStage["faults"] = { append: undefined };
  const effects: string[] = [];
  const holder: DriverStage["holder"] = { isThere: false, reconciles: false, session: undefined };
  const ledger: Ledger = {
    ...inner,
    description: inner.description,
    blobs: inner.blobs,
    lanes: inner.lanes,
    append: (callId, expected, entry) =>
      faults.append?.(decodeEntry({ callId, version: 0, previous: expected, entryId: entry.entryId, data: entry.data })) ??
      inner.append(callId, expected, entry),
    read: (callId, from) => inner.read(callId, from),
  };
  const ids = simIds(new Random(8));
  const timers = createTimerWheel(process.clock, (error) => {
    throw error;
  });
  const note =
    (what: string) =>
    (_driver: DrivenCall, grant?: Partial<Grant>): void =>
      void effects.push(grant?.attempt === undefined ? what : `${what} ${grant.attempt}`);
  function contextOf(brokerId: string): DriverContext {
    return {
      brokerId,
      ledger,
      clock: process.clock,
      ids,
      log: silentLog,
      figures: { ...DEFAULT_FIGURES, ...figures },
      timers,
      stored: () => undefined,
      resultFaults: async () => [],
      effects: {
        offer: note("offer"),
        withdraw: () => undefined,
        sendGrant: (driver, grant, placement) => {
          note("send")(driver, grant);
          placement?.release();
        },
        pushCancel: note("cancel"),
        revoke: note("revoke"),
        sendReconcile: note("send reconcile"),
        reconcileAgain: note("reconcile again"),
        askHolder: async () => {
          effects.push("ask");
          return holder.isThere;
        },
        grantEnded: () => undefined,
        settled: note("settled"),
        handedOver: note("handed over"),
      },
    };
  }
  const context = contextOf("broker_a");
  const drivers = new Map<string, CallDriver>();
  const reconcileAsks = new ReconcileAsks({
    driver: () => context,
    find: (callId) => drivers.get(callId),
    post: () => ({
      canReconcile: async () => holder.reconciles,
      presentSession: async () => holder.session,
      sendReconcile: () => void effects.push("send reconcile"),
    }),
  });
  return {
    world,
    process,
    store,
    faults,
    effects,
    holder,
    reconcileAsks,
    context,
    perform: createPerformer({
      driver: () => context,
      modelText: (code) => code,
      solitary: () => false,
      whyWaiting: () => "runner",
      reconcileAsks,
    }),
    driver(brokerId = "broker_a") {
      const driver = new CallDriver(CALL_ID, brokerId === "broker_a" ? context : contextOf(brokerId));
      drivers.set(CALL_ID, driver);
      return driver;
    },
    async foreign(entry) {
      const last = store.entriesOfCall.get(CALL_ID)?.at(-1)?.version ?? 0;
      const outcome = await inner.append(CALL_ID, last, { entryId: ids.next("entry"), data: encodeEntry(entry), mark: "none" });
      if (outcome.kind !== "appended") {
        throw new LedgerError("closed", "the foreign entry was not stored");
      }
    },
    placement() {
      const placement = {
        holder: sampleHolder(),
        session: { brokerId: "broker_a", application: "default", binding: "shop", runnerId: "runner_a", sessionEpoch: 7 },
        offerId: LOCAL_CLAIM,
        reserved: true,
        release: () => {
          placement.reserved = false;
        },
      };
      return placement;
    },
    kinds: () => (store.entriesOfCall.get(CALL_ID) ?? []).map((stored) => decodeEntry(stored).kind),
    pass: async (ms) => void (await world.run(world.now + ms, () => false)),
    async until(work) {
      let over = false;
      work.then(
        () => {
          over = true;
        },
        () => {
          over = true;
        },
      );
      await world.run(world.now + 600_000, () => over);
      return work;
    },
  };
}

/** A call of a tool that is not safe to repeat, unless told otherwise; granted at once when it has a placement. */
export function accepted(granted: boolean, overrides: Parameters<typeof sampleRequest>[0] = {}): Extract<CallEntry, { kind: "accepted" }> {
  const request = sampleRequest({ idempotent: false, timeoutMs: 60_000, createdAtMs: SAMPLE_START_MS, ...overrides });
  return acceptedEntry(request, granted ? { grant: { attempt: 1, holder: sampleHolder() } } : {});
}
