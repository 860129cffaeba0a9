/** The operations on calls that agents ask for, whichever gateway they come through. */
import { BrokerError } from "../domain/broker-error.js";
import type { CallRequest } from "../domain/call/call-state.js";
import type { CallEntry } from "../domain/call/entries.js";
import { characterBorder } from "../domain/call/projection.js";
import { storedValueOf } from "../domain/call/view.js";
import { answersTurn, type CallEventView, type CallView } from "../domain/call-view.js";
import {
  ARGUMENTS_BYTES_MAX,
  ATTEMPTS_DEFAULT,
  IDEMPOTENCY_KEY_CHARACTERS_MAX,
  RESULT_PAGE_BYTES_DEFAULT,
  RESULT_PAGE_BYTES_MAX,
  TIMEOUT_SECONDS_MIN,
} from "../domain/limits.js";
import type { AgentPrincipal } from "../domain/ports/access.js";
import type { CatalogOperations, Page, PageRequest, ResolvedTool } from "../domain/ports/catalog.js";
import type { Version } from "../domain/ports/ledger.js";
import type { AwaitedDefinitions } from "./awaited-definitions.js";
import { CallDriver } from "./call-driver.js";
import { callIdFor, requestHash } from "./call-id.js";
import { CallNotFound, type CallRouter } from "./call-router.js";
import type { DriverAnswer, DriverCommand } from "./commands.js";
import type { Dispatcher } from "./dispatcher.js";
import type { DriverContext } from "./driver-context.js";
import type { DriverTable } from "./driver-table.js";
import { type LedgerWatch, ledgerAway } from "./ledger-watch.js";
import type { CallFilter, CallOperations, CancelMode, CreateCallBody, ReconcileOutcome } from "./operations.js";
import { changed } from "./perform.js";
import { requirementOf } from "./requirement.js";

/** A remote driver is asked for events in waits of this length, so that its death is noticed. */
const REMOTE_WAIT_MS = 1_500;
const LOCAL_WAIT_MS = 15_000;

export interface CallServiceContext {
  readonly driver: () => DriverContext;
  readonly catalog: CatalogOperations;
  readonly router: CallRouter;
  readonly table: DriverTable;
  readonly dispatcher: Dispatcher;
  readonly definitions: AwaitedDefinitions | undefined;
  /** Ids of calls by filter, newest first; undefined: this broker keeps no index. */
  readonly index:
    | {
        list(
          application: string,
          filter: CallFilter,
          page: PageRequest,
          options: { readonly atLeast: Version },
        ): Promise<Page<{ readonly callId: string }>>;
      }
    | undefined;
  /** Version of the newest entry that this broker stored: what its listings show at least. */
  readonly newest: () => Version;
  readonly ledgerWatch: LedgerWatch;
  readonly draining: () => boolean;
}

export class CallService implements CallOperations {
  constructor(private readonly context: CallServiceContext) {}

  async create(
    principal: AgentPrincipal,
    body: CreateCallBody,
    options: { readonly traceparent?: string | undefined; readonly signal?: AbortSignal | undefined },
  ): Promise<CallView> {
    const hash = requestHash(body);
    const callId = this.idOf(principal, body);
    if (this.context.draining()) {
      throw new BrokerError("draining", "this broker is shutting down: repeat with the same idempotency key at another one");
    }
    let driver: CallDriver | undefined = body.idempotency_key === undefined ? undefined : this.context.table.get(callId);
    if (driver === undefined) {
      driver = await this.accept(principal, body, { callId, hash, traceparent: options.traceparent });
    }
    if (driver === undefined || !(await this.context.ledgerWatch.guard(driver.created))) {
      return this.repeated(callId, hash, body, options.signal);
    }
    if (driver.known.record.request.requestHash !== hash) {
      throw idempotencyConflict();
    }
    return this.answer(callId, driver, body.wait_seconds ?? 0, options.signal);
  }

  async get(
    principal: AgentPrincipal,
    callId: string,
    options: { readonly wait_seconds?: number | undefined; readonly signal?: AbortSignal | undefined },
  ): Promise<CallView> {
    const driver = await this.owned(principal, callId);
    return this.answer(callId, driver, options.wait_seconds ?? 0, options.signal);
  }

  async list(principal: AgentPrincipal, filter: CallFilter, page: PageRequest): Promise<Page<CallView>> {
    if (this.context.index === undefined) {
      throw new BrokerError("index_away", "this broker keeps no index of calls (--no-index): list at a broker that has one", {
        retryAfterSeconds: 1,
      });
    }
    const found = await this.context.index.list(principal.application, filter, page, { atLeast: this.context.newest() });
    const views = await Promise.all(
      found.data.map(({ callId }) =>
        this.view(callId).catch((error: unknown) => (error instanceof CallNotFound ? undefined : Promise.reject(error))),
      ),
    );
    return { data: views.filter((view) => view !== undefined), next_page: found.next_page };
  }

  async listEvents(principal: AgentPrincipal, callId: string, afterSeq: number): Promise<readonly CallEventView[]> {
    await this.owned(principal, callId);
    return (await this.eventsOf(callId, afterSeq, 0)).events;
  }

  async *watchEvents(principal: AgentPrincipal, callId: string, afterSeq: number, signal: AbortSignal): AsyncIterable<CallEventView> {
    await this.owned(principal, callId);
    let seq = afterSeq;
    while (!signal.aborted && !this.context.draining()) {
      const batch = await this.eventsOf(callId, seq, this.waitFor(callId), signal);
      for (const event of batch.events) {
        seq = event.seq;
        yield event;
      }
      if (batch.settled) {
        return;
      }
    }
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
    const json = value.kind === "inline" ? value.json : await this.context.driver().ledger.blobs.get(value.name);
    const whole = Buffer.from(json);
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
    await this.owned(principal, callId);
    const resultJson = body.outcome === "applied" ? JSON.stringify(body.result ?? null) : null;
    return (
      await this.command(callId, { op: "reconcile", outcome: body.outcome, resultJson, by: principal.keyId, note: body.note ?? null })
    ).view;
  }

  private idOf(principal: AgentPrincipal, body: CreateCallBody): string {
    const key = body.idempotency_key;
    if (key === undefined) {
      return this.context.driver().ids.next("call");
    }
    if (key.length === 0 || key.length > IDEMPOTENCY_KEY_CHARACTERS_MAX) {
      throw bodyInvalid("/idempotency_key", `1 to ${IDEMPOTENCY_KEY_CHARACTERS_MAX} characters`, `${key.length} characters`);
    }
    return callIdFor(principal.application, body.agent ?? principal.keyId, key);
  }

  /** Stores the call, granted at once where a claim is free; undefined: it may exist already (B5: keys come before refusals). */
  private async accept(
    principal: AgentPrincipal,
    body: CreateCallBody,
    known: { readonly callId: string; readonly hash: string; readonly traceparent: string | undefined },
  ): Promise<CallDriver | undefined> {
    let request: { readonly facts: CallRequest; readonly argumentsJson: string; readonly confirm: boolean };
    try {
      request = await this.check(principal, body, known);
    } catch (error) {
      if (error instanceof BrokerError && body.idempotency_key !== undefined && (await this.find(known.callId)) !== undefined) {
        return undefined;
      }
      throw error;
    }
    const present = this.context.table.get(known.callId);
    if (present !== undefined) {
      return present;
    }
    const context = this.context.driver();
    const { brokerId, figures, clock } = context;
    const driver = new CallDriver(known.callId, context);
    const placement = request.confirm ? undefined : this.context.dispatcher.reserveLocal(requirementOf(request.facts));
    const at = clock.now();
    const entry: Extract<CallEntry, { kind: "accepted" }> = {
      kind: "accepted",
      at,
      request: request.facts,
      argumentsJson: request.argumentsJson,
      driver: brokerId,
      deadlineAtMs: request.confirm ? null : at + request.facts.timeoutMs,
      confirmationExpiresAtMs: request.confirm ? at + figures.confirmationMs : null,
      grant: placement === undefined ? null : { attempt: 1, holder: placement.holder },
    };
    this.context.table.add(driver);
    const created = driver.create(entry, placement).then(
      (exists) => {
        if (!exists) {
          this.context.table.remove(driver);
        }
        return exists;
      },
      (error: unknown) => {
        this.context.table.remove(driver);
        throw error;
      },
    );
    // The append goes on until it is known; an agent that was told 503 repeats with the same key.
    return (await this.context.ledgerWatch.guard(created)) ? driver : undefined;
  }

  private async check(
    principal: AgentPrincipal,
    body: CreateCallBody,
    known: { readonly callId: string; readonly hash: string; readonly traceparent: string | undefined },
  ): Promise<{ readonly facts: CallRequest; readonly argumentsJson: string; readonly confirm: boolean }> {
    refuseUnsupported(body);
    await this.context.definitions?.settled(body.toolset);
    const resolved = await this.context.catalog.resolveTool(principal.application, body.toolset, body.tool, body.toolset_version);
    const { tool } = resolved;
    if (resolved.bindingKind !== "backend" && body.subject === undefined) {
      throw new BrokerError("subject_required", `${body.tool} runs on a ${resolved.bindingKind} binding: the call must name its subject`, {
        details: [{ path: "/subject", expected: "the end user on whose behalf the call runs", actual: "nothing" }],
      });
    }
    const timeoutSeconds = timeoutOf(body, tool.timeout_seconds);
    const argumentsJson = JSON.stringify(body.arguments);
    const bytes = Buffer.byteLength(argumentsJson);
    if (bytes > ARGUMENTS_BYTES_MAX) {
      throw new BrokerError(
        "arguments_too_large",
        `the arguments of ${body.tool} are ${bytes} bytes, over the limit of ${ARGUMENTS_BYTES_MAX} bytes`,
      );
    }
    const faults = resolved.checkArguments(body.arguments);
    if (faults.length > 0) {
      throw new BrokerError(
        "arguments_invalid",
        `the arguments of ${body.tool} break its input schema in ${faults.length} place${faults.length === 1 ? "" : "s"}`,
        { details: faults },
      );
    }
    return {
      facts: requestFacts(principal, body, resolved, { ...known, timeoutSeconds, nowMs: this.context.driver().clock.now() }),
      argumentsJson,
      confirm: tool.confirmation === "always",
    };
  }

  /** Another creation with this key was first: the same request gets its call, another one a conflict. */
  private async repeated(callId: string, hash: string, body: CreateCallBody, signal: AbortSignal | undefined): Promise<CallView> {
    const found = await this.find(callId);
    if (found === undefined) {
      throw ledgerAway();
    }
    if (found.known.record.request.requestHash !== hash) {
      throw idempotencyConflict();
    }
    return this.answer(callId, found, body.wait_seconds ?? 0, signal);
  }

  /** The call, if it is the caller's: another application's id is answered like an unknown one. */
  private async owned(principal: AgentPrincipal, callId: string): Promise<CallDriver> {
    const found = /^call_[a-z2-7]{26}$/.test(callId) ? await this.find(callId) : undefined;
    if (found === undefined || found.known.record.request.application !== principal.application) {
      throw new BrokerError("not_found", "there is no call with this id");
    }
    return found;
  }

  /** Waits for the turn's answer and shows the call as it is then. */
  private async answer(callId: string, driver: CallDriver, waitSeconds: number, signal: AbortSignal | undefined): Promise<CallView> {
    const { clock } = this.context.driver();
    const endsAt = clock.monotonic() + waitSeconds * 1_000;
    const over = (): boolean => clock.monotonic() >= endsAt || signal?.aborted === true || this.context.draining();
    let present = driver;
    while (!answersTurn(nameOf(present)) && !over()) {
      if (present.drives) {
        await changed(
          present,
          endsAt - clock.monotonic(),
          this.context.driver(),
          () => answersTurn(nameOf(present)) || !present.drives || over(),
          signal,
        );
      } else {
        const batch = await this.eventsOf(
          callId,
          present.known.record.eventSeq,
          Math.min(REMOTE_WAIT_MS, endsAt - clock.monotonic()),
          signal,
        );
        if (answersTurn(batch.state)) {
          break;
        }
      }
      const found = await this.find(callId);
      if (found === undefined) {
        break;
      }
      present = found;
    }
    return this.view(callId);
  }

  private find(callId: string): Promise<CallDriver | undefined> {
    return this.context.ledgerWatch.guard(this.context.router.find(callId));
  }

  private async view(callId: string): Promise<CallView> {
    return (await this.command(callId, { op: "view" })).view;
  }

  private waitFor(callId: string): number {
    return this.context.table.get(callId)?.drives === true ? LOCAL_WAIT_MS : REMOTE_WAIT_MS;
  }

  private async eventsOf(
    callId: string,
    afterSeq: number,
    waitMs: number,
    signal?: AbortSignal,
  ): Promise<Extract<DriverAnswer, { kind: "events" }> & { readonly state: CallView["state"] }> {
    const local = this.context.table.get(callId);
    if (local?.drives === true && waitMs > 0) {
      const has = (): boolean => local.events.some((event) => event.seq > afterSeq) || !local.drives;
      await changed(local, waitMs, this.context.driver(), () => has() || this.context.draining(), signal);
    }
    const answer = await this.context.router.command(callId, {
      op: "events",
      afterSeq,
      waitMs: local === undefined ? Math.max(0, waitMs) : 0,
    });
    if (answer.kind !== "events") {
      throw new Error(`call ${callId}: events were answered by ${answer.kind}`);
    }
    return answer as Extract<DriverAnswer, { kind: "events" }> & { readonly state: CallView["state"] };
  }

  private async command(callId: string, command: DriverCommand): Promise<Extract<DriverAnswer, { kind: "view" }>> {
    const answer = await this.context.ledgerWatch.guard(this.context.router.command(callId, command));
    if (answer.kind === "refused") {
      throw new BrokerError(answer.code, answer.message);
    }
    if (answer.kind !== "view") {
      throw new Error(`call ${callId}: ${command.op} was answered by ${answer.kind}`);
    }
    return answer;
  }
}

function nameOf(driver: CallDriver): CallView["state"] {
  return driver.known.kind;
}

function refuseUnsupported(body: CreateCallBody): void {
  if (body.release !== undefined) {
    throw new BrokerError("release_unsupported", "this broker keeps no releases: leave release out, or pin toolset_version");
  }
  if (body.ordering_key !== undefined) {
    throw new BrokerError("ordering_unsupported", "this broker keeps no lanes: leave ordering_key out");
  }
  if (body.audience !== undefined && body.audience !== "model") {
    throw bodyInvalid("/audience", "model", body.audience.slice(0, 40));
  }
}

function timeoutOf(body: CreateCallBody, toolSeconds: number): number {
  const asked = body.timeout_seconds;
  if (asked === undefined) {
    return toolSeconds;
  }
  if (asked < TIMEOUT_SECONDS_MIN || asked > toolSeconds) {
    throw bodyInvalid("/timeout_seconds", `${TIMEOUT_SECONDS_MIN} to ${toolSeconds}, the tool's own`, String(asked));
  }
  return asked;
}

function requestFacts(
  principal: AgentPrincipal,
  body: CreateCallBody,
  resolved: ResolvedTool,
  known: {
    readonly callId: string;
    readonly hash: string;
    readonly traceparent: string | undefined;
    readonly timeoutSeconds: number;
    readonly nowMs: number;
  },
): CallRequest {
  const { tool } = resolved;
  return {
    callId: known.callId,
    application: principal.application,
    agent: body.agent ?? null,
    keyId: principal.keyId,
    subject: body.subject ?? null,
    session: body.session ?? null,
    toolset: resolved.toolset,
    toolsetVersion: resolved.toolsetVersion,
    tool: tool.name,
    version: tool.version,
    binding: tool.binding,
    bindingKind: resolved.bindingKind,
    readOnly: tool.behaviour === "read_only",
    idempotent: tool.idempotent,
    cancellable: tool.cancellable,
    submission: tool.result_semantics === "submission",
    modelResultBytesMax: tool.max_result_context_bytes,
    scopes: tool.scopes,
    requestHash: known.hash,
    timeoutMs: known.timeoutSeconds * 1_000,
    maxAttempts: body.max_attempts ?? ATTEMPTS_DEFAULT,
    priority: body.priority ?? "interactive",
    traceparent: known.traceparent ?? null,
    createdAtMs: known.nowMs,
  };
}

function bodyInvalid(path: string, expected: string, actual: string): BrokerError {
  return new BrokerError("body_invalid", `${path}: expected ${expected}, got ${actual}`, { details: [{ path, expected, actual }] });
}

function idempotencyConflict(): BrokerError {
  return new BrokerError("idempotency_conflict", "this idempotency key was used for another request: use a new key for a new request");
}
