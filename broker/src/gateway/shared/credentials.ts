/** Who asks: `Authorization: Bearer KEY`, in a header or in gRPC metadata. */

import { BrokerError } from "../../domain/broker-error.js";
import type { AgentPrincipal, Authenticator } from "../../domain/ports/access.js";

/** Keys are far shorter; longer ones are not even hashed. */
const CREDENTIAL_CHARACTERS_MAX = 1_024;
const BEARER = /^bearer(?: +(.*?))? *$/i;

/** The key in an `authorization` value. Throws `BrokerError` `key_missing` or `key_invalid`. */
export function bearerKey(authorization: string | undefined): string {
  if (authorization === undefined || authorization.trim() === "") {
    throw new BrokerError("key_missing", "The request has no key: send Authorization: Bearer KEY.");
  }
  const match = authorization.length <= CREDENTIAL_CHARACTERS_MAX ? BEARER.exec(authorization) : null;
  if (match === null) throw new BrokerError("key_invalid", "The authorization is not of the form Bearer KEY.");
  const key = match[1];
  if (key === undefined || key === "")
    throw new BrokerError("key_missing", "The authorization names no key: send Authorization: Bearer KEY.");
  return key;
}

/** The agent behind an `authorization` value. Throws `BrokerError` `key_missing` or `key_invalid`. */
export async function authenticateAgent(authenticator: Authenticator, authorization: string | undefined): Promise<AgentPrincipal> {
  const principal = await authenticator.agent(bearerKey(authorization));
  if (principal === undefined) {
    throw new BrokerError("key_invalid", "The key is unknown, revoked, or not an agent key: use a valid agent key.");
  }
  return principal;
}
