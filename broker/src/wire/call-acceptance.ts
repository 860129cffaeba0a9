/** From a request to create a call to the call's first entry: what is wrong with it before acceptance makes no call. */
import { BrokerError } from "../domain/broker-error.js";
import type { CallRequest } from "../domain/call/call-state.js";
import type { CallEntry } from "../domain/call/entries.js";
import { ARGUMENTS_BYTES_MAX, ATTEMPTS_DEFAULT, IDEMPOTENCY_KEY_CHARACTERS_MAX, TIMEOUT_SECONDS_MIN } from "../domain/limits.js";
import type { AgentPrincipal } from "../domain/ports/access.js";
import type { CatalogOperations, ResolvedTool } from "../domain/ports/catalog.js";
import type { AwaitedDefinitions } from "./awaited-definitions.js";
import { CallDriver } from "./call-driver.js";
import { callIdFor } from "./call-id.js";
import type { Dispatcher } from "./dispatcher.js";
import type { DriverContext } from "./driver-context.js";
import type { DriverTable } from "./driver-table.js";
import type { CreateCallBody } from "./operations.js";
import type { PermitDesk } from "./permit-desk.js";
import type { Placement } from "./placement.js";
import { requirementOf } from "./requirement.js";

/** A request that may become a call. */
export interface CheckedRequest {
  readonly facts: CallRequest;
  readonly argumentsJson: string;
  readonly confirm: boolean;
  /** See {@link CallDriver.takesAnyResult}. */
  readonly takesAnyResult: boolean;
}

export class CallAcceptance {
  /** By call id: two requests with one key ask for one permit, one after the other. */
  private readonly admissions = new Map<string, Promise<unknown>>();

  constructor(
    private readonly context: {
      readonly driver: () => DriverContext;
      readonly catalog: CatalogOperations;
      readonly table: DriverTable;
      readonly dispatcher: Dispatcher;
      readonly permits: PermitDesk;
      readonly definitions: AwaitedDefinitions | undefined;
    },
  ) {}

  /** With an idempotency key the id follows from it. Throws `BrokerError` `body_invalid`. */
  idOf(principal: AgentPrincipal, body: CreateCallBody): string {
    const key = body.idempotency_key;
    if (key === undefined) {
      return this.context.driver().ids.next("call");
    }
    if (key.length === 0 || key.length > IDEMPOTENCY_KEY_CHARACTERS_MAX) {
      throw bodyInvalid("/idempotency_key", `1 to ${IDEMPOTENCY_KEY_CHARACTERS_MAX} characters`, `${key.length} characters`);
    }
    return callIdFor(principal.application, body.agent ?? principal.keyId, key);
  }

  /** Rejects with the `BrokerError` that says what is wrong with it. */
  async check(
    principal: AgentPrincipal,
    body: CreateCallBody,
    known: { readonly callId: string; readonly hash: string; readonly traceparent: string | undefined },
  ): Promise<CheckedRequest> {
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
      takesAnyResult: tool.output_schema === null,
    };
  }

  /**
   * Begins to store the call, granted at once where a claim is free (the fast path), and puts its driver into the table.
   * The driver's `created` says what came of it, however long the ledger takes. `admitted`: of a call with limits, its claim.
   */
  begin(callId: string, request: CheckedRequest, admitted?: Placement): CallDriver {
    const context = this.context.driver();
    const { table, dispatcher, permits } = this.context;
    const { brokerId, figures, clock } = context;
    const driver = new CallDriver(callId, context);
    driver.takesAnyResult = request.takesAnyResult;
    // A call with an ordering key has to stand in its lane first.
    const waits = request.confirm || request.facts.orderingKey !== undefined;
    const placement = waits || request.facts.limits !== undefined ? admitted : dispatcher.reserveLocal(requirementOf(request.facts));
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
    table.add(driver);
    driver.create(entry, placement).then(
      (created) => {
        if (!created) {
          table.remove(driver);
          permits.abandon(request.facts);
        }
      },
      () => {
        table.remove(driver);
        permits.abandon(request.facts);
      },
    );
    return driver;
  }

  /**
   * For a call with limits: the claim that it may be granted to at once, with a permit for it; undefined: it is to be queued.
   * Rejects with `BrokerError` `queue_full`.
   */
  async admit(request: CheckedRequest): Promise<Placement | undefined> {
    const { callId } = request.facts;
    const earlier = this.admissions.get(callId);
    if (earlier !== undefined) {
      await earlier.catch(() => undefined);
      return this.context.table.get(callId) === undefined ? this.admit(request) : undefined;
    }
    // While a person decides, a call is in no queue.
    const admission = request.confirm ? Promise.resolve(undefined) : this.askPermit(request.facts);
    this.admissions.set(callId, admission);
    try {
      return await admission;
    } finally {
      this.admissions.delete(callId);
    }
  }

  private async askPermit(facts: CallRequest): Promise<Placement | undefined> {
    const { dispatcher, permits } = this.context;
    const placement = facts.orderingKey === undefined ? dispatcher.reserveLocal(requirementOf(facts)) : undefined;
    let isPermitted = false;
    try {
      isPermitted = await permits.admit(facts, placement !== undefined);
    } finally {
      if (!isPermitted) {
        placement?.release();
      }
    }
    return isPermitted ? placement : undefined;
  }
}

function refuseUnsupported(body: CreateCallBody): void {
  if (body.release !== undefined) {
    throw new BrokerError("release_unsupported", "this broker keeps no releases: leave release out, or pin toolset_version");
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
    ...(tool.submission_timeout_seconds === undefined ? {} : { submissionTimeoutMs: tool.submission_timeout_seconds * 1_000 }),
    modelResultBytesMax: tool.max_result_context_bytes,
    scopes: tool.scopes,
    requestHash: known.hash,
    timeoutMs: known.timeoutSeconds * 1_000,
    maxAttempts: body.max_attempts ?? ATTEMPTS_DEFAULT,
    priority: body.priority ?? "interactive",
    ...(body.ordering_key === undefined ? {} : { orderingKey: body.ordering_key }),
    ...(resolved.limits === undefined ? {} : { limits: resolved.limits }),
    traceparent: known.traceparent ?? null,
    createdAtMs: known.nowMs,
  };
}

function bodyInvalid(path: string, expected: string, actual: string): BrokerError {
  return new BrokerError("body_invalid", `${path}: expected ${expected}, got ${actual}`, { details: [{ path, expected, actual }] });
}
