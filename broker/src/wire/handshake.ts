/** Checks a hello: everything that can be wrong with it has its own refusal. Pure but for the credential and the binding. */
import type { CloseCode, HandlerDeclaration, Hello } from "@toolrunner/proto";
import { BrokerError } from "../domain/broker-error.js";
import { HANDLERS_PER_RUNNER_MAX, ID_PATTERN, SLOTS_MAX, TOOL_NAME_PATTERN } from "../domain/limits.js";
import type { Authenticator, RunnerPrincipal } from "../domain/ports/access.js";
import type { BindingKind, CatalogOperations } from "../domain/ports/catalog.js";
import type { RunnerConnection } from "./operations.js";
import { handlerKey } from "./requirement.js";
import { mayActFor } from "./session-credentials.js";

export const PROTOCOL_VERSIONS: readonly number[] = [1];
export const RUNNER_ID_PATTERN = /^[A-Za-z0-9_-]{1,64}$/;

export interface HelloRefusal {
  readonly kind: "refused";
  readonly code: string;
  readonly message: string;
  readonly close: CloseCode;
}

export interface AcceptedHello {
  readonly kind: "accepted";
  readonly principal: RunnerPrincipal;
  readonly protocolVersion: number;
  readonly bindingKind: BindingKind;
  readonly subject: string | null;
  readonly handlers: ReadonlyMap<string, HandlerDeclaration>;
  readonly slots: number;
}

export interface HandshakeContext {
  readonly authenticator: Authenticator;
  readonly catalog: CatalogOperations;
  /** A development broker registers the binding that a runner names. */
  readonly registersBindings: boolean;
}

export async function checkHello(
  hello: Hello,
  connection: RunnerConnection,
  context: HandshakeContext,
): Promise<AcceptedHello | HelloRefusal> {
  const protocolVersion = hello.protocolVersions.find((version) => PROTOCOL_VERSIONS.includes(version));
  if (protocolVersion === undefined) {
    return refuse(
      "protocol_version_unsupported",
      `this broker speaks protocol version ${PROTOCOL_VERSIONS.join(", ")}; the runner offers ${hello.protocolVersions.join(", ") || "none"}. Update the older of the two.`,
      4426,
    );
  }
  const principal = connection.principal ?? (await context.authenticator.runner(hello.credential));
  if (principal === undefined) {
    return refuse(
      "credential_invalid",
      hello.credential === ""
        ? "the session has no credential: send it in authorization or in the hello"
        : "the runner key is wrong or revoked",
      4401,
    );
  }
  const fault = formFault(hello);
  if (fault !== undefined) {
    return refuse("hello_invalid", fault, 4400);
  }
  const admitted = await admitRunner(principal, hello, connection, context);
  if (admitted.kind === "refused") {
    return admitted;
  }
  const handlers = new Map<string, HandlerDeclaration>();
  for (const handler of hello.handlers) {
    handlers.set(handlerKey(principal.application, hello.binding, handler.tool, handler.version), handler);
  }
  return {
    kind: "accepted",
    principal,
    protocolVersion,
    bindingKind: admitted.bindingKind,
    subject: admitted.subject,
    handlers,
    slots: Math.min(hello.slots, SLOTS_MAX),
  };
}

export interface AdmittedRunner {
  readonly kind: "admitted";
  readonly bindingKind: BindingKind;
  /** Null on a backend. */
  readonly subject: string | null;
}

/** May who holds this credential serve the binding, on behalf of the subject? */
export async function admitRunner(
  principal: RunnerPrincipal,
  { binding, subject }: { readonly binding: string; readonly subject: string },
  connection: Pick<RunnerConnection, "origin">,
  context: Omit<HandshakeContext, "authenticator">,
): Promise<AdmittedRunner | HelloRefusal> {
  if (principal.binding !== "*" && principal.binding !== binding) {
    return refuse("binding_not_permitted", `the runner key is for another binding than ${binding}`, 4403);
  }
  const bindingKind = await kindOf(binding, principal, connection, context);
  if (bindingKind === undefined) {
    return refuse("binding_not_permitted", `binding ${binding} is not registered: PUT /v1/bindings/${binding} first`, 4403);
  }
  if (bindingKind !== "backend" && principal.subject !== undefined && principal.subject !== subject) {
    return refuse("credential_not_permitted", "the credential is for another subject than was named", 4403);
  }
  if (bindingKind !== "backend" && !mayActFor(principal, subject)) {
    return refuse(
      "subject_token_required",
      `binding ${binding} is of kind ${bindingKind}: a runner key cannot prove a subject there`,
      4403,
    );
  }
  if (bindingKind !== "backend" && subject === "") {
    return refuse(
      "hello_invalid",
      `subject: binding ${binding} is of kind ${bindingKind}, so the runner must name the subject it acts for`,
      4400,
    );
  }
  return { kind: "admitted", bindingKind, subject: bindingKind === "backend" ? null : subject };
}

function formFault(hello: Hello): string | undefined {
  if (!RUNNER_ID_PATTERN.test(hello.runnerId)) {
    return `runner_id: expected 1 to 64 of A-Z a-z 0-9 _ -, got ${hello.runnerId.length} characters`;
  }
  if (!ID_PATTERN.test(hello.binding)) {
    return "binding: expected an id of the form [a-z][a-z0-9_-]{0,63}";
  }
  if (hello.journalId === "" || hello.journalId.length > 128) {
    return "journal_id: expected 1 to 128 characters";
  }
  if (hello.subject.length > 256) {
    return `subject: expected at most 256 characters, got ${hello.subject.length}`;
  }
  if (hello.handlers.length > HANDLERS_PER_RUNNER_MAX) {
    return `handlers: expected at most ${HANDLERS_PER_RUNNER_MAX}, got ${hello.handlers.length}`;
  }
  const seen = new Set<string>();
  for (const [index, handler] of hello.handlers.entries()) {
    if (!TOOL_NAME_PATTERN.test(handler.tool) || handler.version === "" || handler.version.length > 64) {
      return `handlers[${index}]: expected a tool name and a version of 1 to 64 characters`;
    }
    const key = `${handler.tool}\n${handler.version}`;
    if (seen.has(key)) {
      return `handlers[${index}]: ${handler.tool} version ${handler.version} is declared twice`;
    }
    seen.add(key);
  }
  return undefined;
}

async function kindOf(
  binding: string,
  principal: RunnerPrincipal,
  connection: Pick<RunnerConnection, "origin">,
  context: Omit<HandshakeContext, "authenticator">,
): Promise<BindingKind | undefined> {
  try {
    return (await context.catalog.getBinding(principal.application, binding)).kind;
  } catch (error) {
    if (!(error instanceof BrokerError)) {
      throw error;
    }
  }
  if (!context.registersBindings) {
    return undefined;
  }
  const kind = connection.origin === undefined ? "backend" : "browser";
  return (await context.catalog.putBinding(principal.application, binding, { name: binding, kind })).binding.kind;
}

function refuse(code: string, message: string, close: CloseCode): HelloRefusal {
  return { kind: "refused", code, message, close };
}
