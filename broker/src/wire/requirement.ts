/** What a call needs of a runner: routing is by application, binding, tool, exact handler version and, off the backend, subject. */
import { createHash } from "node:crypto";
import type { CallRequest } from "../domain/call/call-state.js";

export interface Requirement {
  readonly application: string;
  readonly binding: string;
  readonly tool: string;
  readonly version: string;
  /** Null on a backend binding, which serves all subjects (X4). */
  readonly subject: string | null;
}

export function requirementOf(request: CallRequest): Requirement {
  return {
    application: request.application,
    binding: request.binding,
    tool: request.tool,
    version: request.version,
    subject: request.bindingKind === "backend" ? null : request.subject,
  };
}

/** Key of all handlers of one tool and version on one binding, whatever their subject. */
export function handlerKey(application: string, binding: string, tool: string, version: string): string {
  return `${application}\n${binding}\n${tool}\n${version}`;
}

export function handlerKeyOf(requirement: Requirement): string {
  return handlerKey(requirement.application, requirement.binding, requirement.tool, requirement.version);
}

/** Key of the runners that can take a call, and of the calls that wait for the same runners: a handler and a subject. */
export function laneKey(handler: string, subject: string | null): string {
  return subject === null ? handler : `${handler}\n${subject}`;
}

export function laneKeyOf(requirement: Requirement): string {
  return laneKey(handlerKeyOf(requirement), requirement.subject);
}

/** Key of the runners of one binding that act for the same subject. */
export function placeKey(application: string, binding: string, subject: string | null): string {
  return subject === null ? `${application}\n${binding}` : `${application}\n${binding}\n${subject}`;
}

/** A bus token for a handler key: names may hold characters that a subject cannot. */
export function handlerToken(key: string): string {
  return createHash("sha256").update(key).digest("hex").slice(0, 32);
}
