/**
 * What must hold at every moment of a simulated site, seen from the outside: by what the ledger holds, by which handlers began,
 * and by what runners were acknowledged.
 *
 * Invariants: it reads stored entries as they lie in the ledger and knows nothing of the product's own call machine, so that a
 * fault there cannot hide itself; each entry, start and acknowledgement is looked at once, right after it happened.
 */
import { SIM_TOOLS, type SimSite } from "./simulation.js";

/** An entry as it is stored; the members that the rules are about. */
interface RawEntry {
  readonly kind: string;
  readonly grant?: { readonly holder: { readonly runnerId: string } } | null;
  readonly grantId?: string;
  readonly retryAtMs?: number | null;
  readonly reason?: string;
  readonly outcome?: string;
  readonly error?: object | null;
  readonly fault?: object | null;
  readonly confirmationExpiresAtMs?: number | null;
  readonly request?: { readonly toolset: string; readonly tool: string };
  readonly receipt?: { readonly grantId: string; readonly outcome: string };
  readonly startedGrantId?: string;
  readonly askId?: string;
  readonly cancelled?: boolean;
}

type Phase = "awaiting" | "queued" | "running" | "submitted" | "unknown" | "settled";

interface KnownGrant {
  readonly fence: number;
  readonly runnerId: string;
  /** The entry that said that it counts no longer, for a reason that promises that its handler never begins from now on. */
  over: "lease_lost" | "returned" | undefined;
}

interface KnownCall {
  readonly repeatable: boolean;
  /** A person has to confirm it first. */
  readonly asks: boolean;
  confirmed: boolean;
  phase: Phase;
  version: number;
  newest: string | undefined;
  readonly grants: Map<string, KnownGrant>;
  readonly receipts: Set<string>;
  /** The question to a reconcile handler whose answer counts. */
  question: string | undefined;
  /** How often somebody said that it was not applied. */
  notApplied: number;
  starts: number;
}

/** Watches one site; whatever breaks a rule is told to the site as a failure. */
export class Oracle {
  private readonly calls = new Map<string, KnownCall>();
  private entries = 0;
  private starts = 0;
  private acknowledgements = 0;

  constructor(private readonly site: SimSite) {}

  /** Looks at what is new. */
  look(): void {
    const { store, starts, acknowledgements } = this.site;
    for (; this.entries < store.entries.length; this.entries += 1) {
      const stored = store.entries[this.entries];
      if (stored !== undefined) this.entry(stored.callId, stored, JSON.parse(stored.data) as RawEntry);
    }
    for (; this.starts < starts.length; this.starts += 1) {
      const start = starts[this.starts];
      if (start !== undefined) this.start(start);
    }
    for (; this.acknowledgements < acknowledgements.length; this.acknowledgements += 1) {
      const acknowledged = acknowledgements[this.acknowledgements];
      if (acknowledged !== undefined) this.acknowledged(acknowledged.callId, acknowledged.grantId);
    }
  }

  /** Calls that ended with a handle, and whose outcome is to come. */
  submitted(): readonly string[] {
    return [...this.calls].flatMap(([callId, { phase }]) => (phase === "submitted" ? [callId] : []));
  }

  /** How many entries of this kind there are. */
  count(kind: string): number {
    return this.site.store.entries.filter((stored) => stored !== undefined && (JSON.parse(stored.data) as RawEntry).kind === kind).length;
  }

  private broken(rule: string, what: string): void {
    this.site.failed(`${rule}: ${what}`);
  }

  private entry(
    callId: string,
    stored: { readonly version: number; readonly previous: number; readonly entryId: string },
    raw: RawEntry,
  ): void {
    const known = this.calls.get(callId);
    if (known === undefined) {
      this.accepted(callId, stored, raw);
      return;
    }
    if (stored.previous !== known.version || stored.version <= known.version) {
      this.broken("L3", `entry ${stored.version} of ${callId} follows ${known.version} and says ${stored.previous}`);
    }
    known.version = stored.version;
    if (known.phase === "settled" && raw.kind !== "evidence") {
      this.broken("I4", `${callId} settled, and then came ${raw.kind}`);
      return;
    }
    this.step(callId, known, stored, raw);
  }

  private accepted(callId: string, stored: { readonly version: number; readonly entryId: string }, raw: RawEntry): void {
    const { request } = raw;
    if (raw.kind !== "accepted" || request === undefined) {
      this.broken("I1", `the first entry of ${callId} is ${raw.kind}`);
      return;
    }
    const known: KnownCall = {
      repeatable: SIM_TOOLS.some(({ toolset, tool, idempotent }) => toolset === request.toolset && tool === request.tool && idempotent),
      asks: SIM_TOOLS.some(
        ({ toolset, tool, confirmation }) => toolset === request.toolset && tool === request.tool && confirmation === "always",
      ),
      confirmed: false,
      phase: (raw.confirmationExpiresAtMs ?? null) !== null ? "awaiting" : "queued",
      version: stored.version,
      newest: undefined,
      grants: new Map(),
      receipts: new Set(),
      question: undefined,
      notApplied: 0,
      starts: 0,
    };
    this.calls.set(callId, known);
    if (raw.grant) this.granted(callId, known, stored, raw.grant.holder.runnerId);
  }

  private step(callId: string, known: KnownCall, stored: { readonly version: number; readonly entryId: string }, raw: RawEntry): void {
    const { phase } = known;
    const expect = (...phases: readonly Phase[]): void => {
      if (!phases.includes(phase)) this.broken("I2", `${raw.kind} of ${callId} while it was ${phase}`);
    };
    switch (raw.kind) {
      case "confirmed":
        expect("awaiting");
        known.confirmed = true;
        known.phase = "queued";
        break;
      case "granted":
        expect("queued");
        if (raw.grant) this.granted(callId, known, stored, raw.grant.holder.runnerId);
        break;
      case "returned":
        expect("running");
        this.ends(known, raw.grantId, raw.reason === "forbidden" ? undefined : "returned");
        // A runner that contradicts itself makes the outcome unknown; what the entry led to shows in what follows it.
        known.phase = raw.reason === "forbidden" ? "settled" : "queued";
        break;
      case "lease_lost":
        expect("running");
        this.ends(known, raw.grantId, "lease_lost");
        if ((raw.retryAtMs ?? null) !== null && !known.repeatable)
          this.broken("I3", `${callId} is to be repeated after a lost lease, and is not safe to repeat`);
        known.phase = (raw.retryAtMs ?? null) === null ? "unknown" : "queued";
        break;
      case "receipt":
        this.receipt(callId, known, raw);
        break;
      case "evidence":
        known.receipts.add(raw.receipt?.grantId ?? "");
        break;
      case "reconcile_granted":
        expect("running", "unknown");
        if (known.repeatable || raw.startedGrantId !== known.newest)
          this.broken("G4", `${callId} is asked about in vain: it may be repeated`);
        if (phase === "running") this.ends(known, raw.startedGrantId, "lease_lost");
        known.question = stored.entryId;
        known.phase = "unknown";
        break;
      case "reconcile_unanswered":
        expect("unknown");
        if (raw.grantId !== known.question) this.broken("G4", `a question about ${callId} ends that is not open`);
        known.question = undefined;
        break;
      case "reconciled":
        expect("unknown");
        if (raw.askId !== undefined && raw.askId !== known.question)
          this.broken("G4", `${callId} takes the answer to a question that is not open`);
        known.question = undefined;
        if (raw.outcome === "not_applied") known.notApplied += 1;
        known.phase = raw.outcome === "not_applied" && (raw.error ?? null) === null && raw.cancelled !== true ? "queued" : "settled";
        break;
      case "timed_out":
        known.phase = phase === "running" && !known.repeatable ? "unknown" : "settled";
        break;
      case "denied":
      case "exhausted":
      case "cancelled":
        known.phase = "settled";
        break;
      default:
    }
  }

  private granted(
    callId: string,
    known: KnownCall,
    stored: { readonly version: number; readonly entryId: string },
    runnerId: string,
  ): void {
    known.phase = "running";
    known.newest = stored.entryId;
    known.grants.set(stored.entryId, { fence: stored.version, runnerId, over: undefined });
    if (known.asks && !known.confirmed) this.broken("G7", `${callId} is granted, and nobody confirmed it`);
    if (!known.repeatable && known.starts > known.notApplied)
      this.broken("I3", `${callId} began, and is granted again, and nobody said that it was not applied`);
  }

  private ends(known: KnownCall, grantId: string | undefined, over: KnownGrant["over"]): void {
    const grant = known.grants.get(grantId ?? "");
    if (grant !== undefined) grant.over = over;
  }

  private receipt(callId: string, known: KnownCall, raw: RawEntry): void {
    const { receipt } = raw;
    if (receipt === undefined) return;
    known.receipts.add(receipt.grantId);
    if (receipt.grantId !== known.newest)
      this.broken("I5", `${callId} takes the receipt of ${receipt.grantId}, and ${known.newest} is the newest grant`);
    if (known.phase === "awaiting") this.broken("I5", `${callId} takes a receipt, and nobody confirmed it`);
    if (receipt.outcome === "submitted") known.phase = "submitted";
    else known.phase = (raw.retryAtMs ?? null) === null ? "settled" : "queued";
  }

  private start({
    callId,
    grantId,
    fence,
    runnerId,
  }: {
    readonly callId: string;
    readonly grantId: string;
    readonly fence: number;
    readonly runnerId: string;
  }): void {
    const known = this.calls.get(callId);
    const grant = known?.grants.get(grantId);
    if (known === undefined || grant === undefined || grant.fence !== fence || grant.runnerId !== runnerId) {
      this.broken("I2", `${callId} begins at ${runnerId} under fence ${fence}, which no entry grants to it`);
      return;
    }
    known.starts += 1;
    if (!known.repeatable && known.starts > known.notApplied + 1)
      this.broken("I3", `${callId} is not safe to repeat and begins for the ${known.starts}. time`);
    if (grant.over === "lease_lost") this.broken("G3", `${callId} begins at ${runnerId} after its lease was found lost`);
    if (grant.over === "returned") this.broken("G1", `${callId} begins at ${runnerId} under a grant that came back as not begun`);
  }

  private acknowledged(callId: string, grantId: string): void {
    if (this.calls.get(callId)?.receipts.has(grantId) !== true) {
      this.broken("I4", `a receipt of grant ${grantId} of ${callId} is acknowledged, and none is stored`);
    }
  }
}
