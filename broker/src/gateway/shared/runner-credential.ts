/** The credential of a runner, where its transport carries `authorization`. */

import { BrokerError } from "../../domain/broker-error.js";
import type { Authenticator, RunnerPrincipal } from "../../domain/ports/access.js";
import { bearerKey } from "./credentials.js";

/**
 * The runner behind an `authorization` value. `undefined` when there is none: the credential must then be in the hello.
 * Throws `BrokerError` `key_missing` or `key_invalid` when there is one that is not a valid runner key.
 */
export async function authenticateRunner(
  authenticator: Authenticator,
  authorization: string | undefined,
): Promise<RunnerPrincipal | undefined> {
  if (authorization === undefined) return undefined;
  const principal = await authenticator.runner(bearerKey(authorization));
  if (principal === undefined) {
    throw new BrokerError("key_invalid", "The key is unknown, revoked, or not a runner key: use a runner key of the binding.");
  }
  return principal;
}

/** The runner behind an `authorization` value that has to be there. Throws `BrokerError` `key_missing` or `key_invalid`. */
export async function requireRunner(authenticator: Authenticator, authorization: string | undefined): Promise<RunnerPrincipal> {
  const principal = await authenticateRunner(authenticator, authorization ?? "");
  if (principal === undefined) throw new BrokerError("key_missing", "The request has no key: send Authorization: Bearer KEY.");
  return principal;
}
