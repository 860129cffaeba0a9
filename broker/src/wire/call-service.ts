/** The operations on calls that agents ask for, whichever gateway they come through. */
import { BrokerError } from "../domain/broker-error.js";
import { isSettledState, type StoredText } from "../domain/call/call-state.js";
import { characterBorder } from "../domain/call/projection.js";
import { isExpired, ownerOf } from "../domain/call/retention.js";
import { storedValueOf } from "../domain/call/view.js";
import type { CallEventView, CallFilter, CallView } from "../domain/call-view.js";
import { RESULT_BYTES_MAX, RESULT_PAGE_BYTES_DEFAULT, RESULT_PAGE_BYTES_MAX } from "../domain/limits.js";
import type { AgentPrincipal } from "../domain/ports/access.js";
import type { Page, PageRequest } from "../domain/ports/catalog.js";
import { LedgerError, type Version } from "../domain/ports/ledger.js";
import type { CallAcceptance, CheckedRequest } from "./call-acceptance.js";
import type { CallDriver } from "./call-driver.js";
import { requestHash } from "./call-id.js";
import { entriesOf } from "./call-removal.js";
import { CallNotFound, type CallRouter } from "./call-router.js";
import type { CallWaits } from "./call-waits.js";
import type { DriverAnswer, DriverCommand } from "./commands.js";
import type { Drain } from "./drain.js";
import type { DriverContext } from "./driver-context.js";
import type { DriverTable } from "./driver-table.js";
import { inlineText } from "./frames.js";
import type { LaneDesk } from "./lane-desk.js";
import { type LedgerWatch, ledgerAway } from "./ledger-watch.js";
import type { CallOperations, CancelMode, CreateCallBody, ReconcileOutcome, WaitGoal, WaitSignal } from "./operations.js";
import type { Placement } from "./placement.js";
import type { RemovedCall } from "./retention.js";
import { storedOnce } from "./stored-once.js";
import { ValuesInPages } from "./values-in-pages.js";

/** How often a request meets remains of a call under its key, each time after it removed some, before it is told to come again. */
const REMOVALS_MAX = 4;

export interface CallServiceContext {
  readonly driver: () => DriverContext;
  readonly acceptance: CallAcceptance;
  readonly router: CallRouter;
  readonly waits: CallWaits;
  readonly table: DriverTable;
  /** Ids of calls by filter, newest first; undefined: this broker keeps no index. */
  readonly index:
    | {
        list(
          application: string,
          filter: CallFilter,
          page: PageRequest,
          options: { readonly atLeast: Version },
        ): Promise<Page<RemovedCall>>;
        /** These calls are gone. */
        dropped(calls: readonly RemovedCall[]): void;
      }
    | undefined;
  /** Version of the newest entry that this broker stored: what its listings show at least. */
  readonly newest: () => Version;
  /** The call as it is, where nobody has to be asked for that; `isSure`: see the command `view`. */
  readonly viewNow: (driver: CallDriver, isSure: boolean) => CallView | undefined;
  readonly lanes: Pick<LaneDesk, "joined">;
  readonly ledgerWatch: LedgerWatch;
  readonly drain: Drain;
  /** Finishes the removal of an expired call; false: it is not expired. */
  readonly finishRemoval: (callId: string) => Promise<boolean>;
}

export class CallService implements CallOperations {
  private readonly read: ValuesInPages;

  constructor(private readonly context: CallServiceContext) {
    this.read = new ValuesInPages(async (name) => Buffer.from(await context.driver().ledger.blobs.get(name)));
  }

  async create(
    principal: AgentPrincipal,
    body: CreateCallBody,
    options: { readonly traceparent?: string | undefined; readonly signal?: WaitSignal | undefined },
  ): Promise<CallView> {
    const begunAtMs = this.context.driver().clock.monotonic();
    const hash = requestHash(body);
    const callId = this.context.acceptance.idOf(principal, body);
    if (this.context.drain.begun) {
      throw new BrokerError("draining", "this broker is shutting down: repeat with the same idempotency key at another one");
    }
    const held = await this.held(principal, body, { callId, hash, traceparent: options.traceparent });
    if (held.known.record.request.requestHash !== hash) {
      throw new BrokerError("idempotency_conflict", "this idempotency key was used for another request: use a new key for a new request");
    }
    const { kind, record } = held.known;
    if (record.request.orderingKey !== undefined && (kind === "queued" || kind === "awaiting_confirmation")) {
      // X10: what is acknowledged comes before what is sent after that.
      await this.context.ledgerWatch.guard(this.context.lanes.joined(callId, record.request, held.drives));
    }
    return this.answer(held, begunAtMs, body.wait_seconds ?? 0, options.signal);
  }

  async get(
    principal: AgentPrincipal,
    callId: string,
    options: {
      readonly wait_seconds?: number | undefined;
      readonly wait_for?: WaitGoal | undefined;
      readonly signal?: WaitSignal | undefined;
    },
  ): Promise<CallView> {
    const begunAtMs = this.context.driver().clock.monotonic();
    return this.answer(await this.owned(principal, callId), begunAtMs, options.wait_seconds ?? 0, options.signal, options.wait_for);
  }

  async list(principal: AgentPrincipal, filter: CallFilter, page: PageRequest): Promise<Page<CallView>> {
    if (this.context.index === undefined) {
      throw new BrokerError("index_away", "this broker keeps no index of calls (--no-index): list at a broker that has one", {
        retryAfterSeconds: 1,
      });
    }
    const found = await this.context.index.list(principal.application, filter, page, { atLeast: this.context.newest() });
    const gone: RemovedCall[] = [];
    const shown = new Set<string>();
    const views = await Promise.all(
      found.data.map(async (row) => {
        if (shown.has(row.callId)) {
          // The newest row is first: an older one is of a call that had this id before, and is gone.
          gone.push(row);
          return undefined;
        }
        shown.add(row.callId);
        return this.view(row.callId).catch((error: unknown) => {
          if (error instanceof CallNotFound) {
            gone.push(row);
          } else if (!isExpiredRefusal(error)) {
            throw error;
          }
          return undefined;
        });
      }),
    );
    if (gone.length > 0) {
      this.context.index.dropped(gone);
    }
    return { data: views.filter((view) => view !== undefined), next_page: found.next_page };
  }

  async listEvents(principal: AgentPrincipal, callId: string, afterSeq: number): Promise<readonly CallEventView[]> {
    await this.owned(principal, callId);
    return this.context.ledgerWatch.guard(this.context.waits.list(callId, afterSeq));
  }

  async *watchEvents(principal: AgentPrincipal, callId: string, afterSeq: number, signal: WaitSignal): AsyncIterable<CallEventView> {
    await this.owned(principal, callId);
    yield* this.context.waits.watch(callId, afterSeq, signal);
  }

  async readResult(
    principal: AgentPrincipal,
    callId: string,
    page: { readonly offset?: number | undefined; readonly max_bytes?: number | undefined },
  ): Promise<{ readonly text: string; readonly next_offset: number; readonly eof: boolean }> {
    const driver = await this.owned(principal, callId);
    const value = storedValueOf(driver.known);
    if (value === null) {
      throw new BrokerError("not_found", `call ${callId} has no result`);
    }
    const whole =
      value.kind === "inline"
        ? Buffer.from(value.json)
        : await this.context.ledgerWatch.guard(this.read.get(value.name, value.bytes)).catch(expiredOf(callId));
    const start = characterBorder(whole, page.offset ?? 0, "down");
    const size = Math.min(page.max_bytes ?? RESULT_PAGE_BYTES_DEFAULT, RESULT_PAGE_BYTES_MAX);
    const end = Math.max(characterBorder(whole, start + size, "down"), Math.min(whole.length, characterBorder(whole, start + 1, "up")));
    return { text: whole.toString("utf8", start, end), next_offset: end, eof: end >= whole.length };
  }

  async cancel(
    principal: AgentPrincipal,
    callId: string,
    body: { readonly mode?: CancelMode | undefined; readonly reason?: string | undefined },
  ): Promise<{ readonly answered: boolean; readonly call: CallView }> {
    await this.owned(principal, callId);
    const answer = await this.command(callId, { op: "cancel", mode: body.mode ?? "kill", reason: body.reason ?? null });
    return { answered: answer.answered, call: answer.view };
  }

  async confirm(principal: AgentPrincipal, callId: string, body: { readonly decision: "allow" | "deny" }): Promise<CallView> {
    await this.owned(principal, callId);
    return (await this.command(callId, { op: "confirm", decision: body.decision, by: principal.keyId })).view;
  }

  async reconcile(
    principal: AgentPrincipal,
    callId: string,
    body: { readonly outcome: ReconcileOutcome; readonly result?: unknown; readonly note?: string | undefined },
  ): Promise<CallView> {
    const { known } = await this.owned(principal, callId);
    if (known.kind !== "needs_reconciliation") {
      throw new BrokerError("not_reconcilable", `call ${callId} is ${known.kind}`);
    }
    const value = body.outcome === "applied" ? await this.stored(callId, JSON.stringify(body.result ?? null)) : null;
    const { outcome, note = null } = body;
    const { grantId } = known.grant;
    return (await this.command(callId, { op: "reconcile", grantId, outcome, value, by: principal.keyId, note })).view;
  }

  /** The call of this request: made now, or by an earlier one with the same key. */
  private async held(
    principal: AgentPrincipal,
    body: CreateCallBody,
    request: { readonly callId: string; readonly hash: string; readonly traceparent: string | undefined },
  ): Promise<CallDriver> {
    const { table, ledgerWatch, finishRemoval } = this.context;
    const { callId } = request;
    for (let tries = 0; tries < REMOVALS_MAX; tries += 1) {
      const known = body.idempotency_key === undefined ? undefined : table.get(callId);
      const driver = known ?? (await this.accept(principal, body, request));
      // The append goes on until it is known; an agent that was told 503 repeats with the same key.
      if (driver !== undefined && (await ledgerWatch.guard(driver.created))) {
        return driver;
      }
      const found = await this.find(callId);
      if (found !== undefined) {
        return found;
      }
      // X12: a key lives as long as its call, and retention is taking that away.
      if (!(await ledgerWatch.guard(finishRemoval(callId)))) {
        break;
      }
    }
    throw ledgerAway();
  }

  /** Begins to store the call; undefined: it may exist already (B5: keys come before refusals). */
  private async accept(
    principal: AgentPrincipal,
    body: CreateCallBody,
    known: { readonly callId: string; readonly hash: string; readonly traceparent: string | undefined },
  ): Promise<CallDriver | undefined> {
    const { acceptance, table, ledgerWatch } = this.context;
    let request: CheckedRequest;
    try {
      request = await acceptance.check(principal, body, known);
    } catch (error) {
      if (error instanceof BrokerError && body.idempotency_key !== undefined && (await this.find(known.callId)) !== undefined) {
        return undefined;
      }
      throw error;
    }
    const present = table.get(known.callId);
    if (present === undefined && ledgerWatch.away) {
      // Nothing is piled up for a ledger that does not answer.
      throw ledgerAway();
    }
    if (present !== undefined || request.facts.limits === undefined) {
      return present ?? acceptance.begin(known.callId, request);
    }
    return this.acceptLimited(known.callId, request, body.idempotency_key !== undefined);
  }

  /** The same for a call of a tool or binding with limits (X8). */
  private async acceptLimited(callId: string, request: CheckedRequest, isKeyed: boolean): Promise<CallDriver | undefined> {
    const { acceptance, table } = this.context;
    let placement: Placement | undefined;
    try {
      placement = await acceptance.admit(request);
    } catch (error) {
      if (error instanceof BrokerError && isKeyed && (await this.find(callId)) !== undefined) {
        return undefined;
      }
      throw error;
    }
    const present = table.get(callId);
    if (present !== undefined) {
      // Somebody else made the call meanwhile, and speaks for it.
      placement?.release();
      return present;
    }
    return acceptance.begin(callId, request, placement);
  }

  /** The call, if it is the caller's: another application's id is answered like an unknown one. */
  private async owned(principal: AgentPrincipal, callId: string): Promise<CallDriver> {
    const isId = /^call_[a-z2-7]{26}$/.test(callId);
    const found = isId ? await this.find(callId) : undefined;
    if (isId && found === undefined && (await this.wasOwned(principal, callId))) {
      throw expired(callId);
    }
    if (found === undefined || found.known.record.request.application !== principal.application) {
      throw new BrokerError("not_found", "there is no call with this id");
    }
    return found;
  }

  /** Is the call expired, and was it the caller's? */
  private async wasOwned(principal: AgentPrincipal, callId: string): Promise<boolean> {
    const left = await this.context.ledgerWatch.guard(entriesOf(this.context.driver().ledger, callId));
    return isExpired(left) && ownerOf(left) === principal.application;
  }

  /** Waits for the turn's answer and shows the call as it is then. */
  private async answer(
    driver: CallDriver,
    begunAtMs: number,
    waitSeconds: number,
    signal: WaitSignal | undefined,
    goal?: WaitGoal,
  ): Promise<CallView> {
    await this.context.waits.forAnswer(driver, waitSeconds * 1_000, signal, goal);
    const here = isSettledState(driver.known) ? driver : this.context.router.here(driver.callId);
    const isSure = here?.hasStored(this.context.driver().clock.monotonic() - begunAtMs) === true;
    const now = here === undefined ? undefined : this.context.viewNow(here, isSure);
    return now ?? (await this.command(driver.callId, { op: "view", isSure })).view;
  }

  private find(callId: string): Promise<CallDriver | undefined> {
    return this.context.ledgerWatch.guard(this.context.router.find(callId));
  }

  private async view(callId: string): Promise<CallView> {
    return (await this.command(callId, { op: "view" })).view;
  }

  /** A value that a person gave, small enough for any bus and entry. */
  private async stored(callId: string, json: string): Promise<StoredText> {
    const text = inlineText(json);
    if (text.bytes > RESULT_BYTES_MAX) {
      throw new BrokerError("body_too_large", `result: ${text.bytes} bytes, over the limit of ${RESULT_BYTES_MAX} bytes`);
    }
    return this.context.ledgerWatch.guard(storedOnce(this.context.driver().ledger.blobs, callId, text));
  }

  private async command(callId: string, command: DriverCommand): Promise<Extract<DriverAnswer, { kind: "view" }>> {
    const answer = await this.context.ledgerWatch.guard(this.context.router.command(callId, command)).catch(expiredOf(callId));
    if (answer.kind === "refused") {
      throw new BrokerError(answer.code, answer.message);
    }
    if (answer.kind !== "view") {
      throw new Error(`call ${callId}: ${command.op} was answered by ${answer.kind}`);
    }
    return answer;
  }
}

/** The value of a call goes before the call itself (L6): one that an entry names, and that is not there, was removed. */
function expiredOf(callId: string): (error: unknown) => never {
  return (error) => {
    throw error instanceof LedgerError && error.code === "blob_missing" ? expired(callId, error) : error;
  };
}

function expired(callId: string, cause?: unknown): BrokerError {
  return new BrokerError("call_expired", `call ${callId} settled so long ago that it is being removed`, { cause });
}

function isExpiredRefusal(error: unknown): boolean {
  return error instanceof BrokerError && error.code === "call_expired";
}
