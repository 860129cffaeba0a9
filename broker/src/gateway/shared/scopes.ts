/** Which scope each operation needs, on every interface. */

import { BrokerError } from "../../domain/broker-error.js";
import type { AgentPrincipal, Scope } from "../../domain/ports/access.js";

/** `undefined`: any valid agent key will do. */
export const OPERATION_SCOPES = {
  createCall: "calls:write",
  createBatch: "calls:write",
  cancelCall: "calls:write",
  getCall: "calls:read",
  listCalls: "calls:read",
  listCallEvents: "calls:read",
  watchCall: "calls:read",
  readResult: "calls:read",
  confirmCall: "confirm",
  reconcileCall: "admin",
  putBinding: "catalog:write",
  getBinding: undefined,
  listBindings: undefined,
  putToolset: "catalog:write",
  getToolset: undefined,
  listToolsets: undefined,
  getToolsetVersion: undefined,
  listToolsetVersions: undefined,
  createAgentKey: "admin",
  listAgentKeys: "admin",
  getAgentKey: "admin",
  revokeAgentKey: "admin",
  createRunnerKey: "admin",
  listRunnerKeys: "admin",
  getRunnerKey: "admin",
  revokeRunnerKey: "admin",
  listRunners: "diagnostics:read",
  readMetrics: "diagnostics:read",
} as const satisfies Record<string, Scope | undefined>;

/** Every operation that agents may ask for. */
export type OperationName = keyof typeof OPERATION_SCOPES;

/** What is asked for by the runner key of a binding, which no agent key stands for. */
export const RUNNER_OPERATIONS = ["updateCall", "settleCall"] as const;
export type RunnerOperationName = (typeof RUNNER_OPERATIONS)[number];

/** Is it asked for by a runner key? */
export function isRunnerOperation(operation: OperationName | RunnerOperationName): operation is RunnerOperationName {
  return (RUNNER_OPERATIONS as readonly string[]).includes(operation);
}

/** Throws `BrokerError` `scope_missing` when the key does not hold what `operation` needs. */
export function requireScope(principal: AgentPrincipal, operation: OperationName): void {
  const scope = OPERATION_SCOPES[operation];
  if (scope !== undefined && !principal.scopes.has(scope)) {
    throw new BrokerError("scope_missing", `The key ${principal.keyId} does not hold the scope ${scope}: use a key that does.`);
  }
}
