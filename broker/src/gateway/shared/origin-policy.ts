/**
 * Which `Host` and `Origin` a development broker answers.
 *
 * A page of any site can make its own name resolve to 127.0.0.1 and then talk to a local broker as its own origin (DNS
 * rebinding). The name it used is still in `Host`: only loopback names and those of allowed origins pass.
 */

import { BrokerError } from "../../domain/broker-error.js";

/** Where requests may come from. */
export interface OriginRules {
  /** Only loopback names, and `allowOrigins`. False: anything goes. */
  readonly loopbackOnly: boolean;
  /** Further origins, such as `https://app.example`; their host names pass as `Host` too. */
  readonly allowOrigins: readonly string[];
}

/** Throws `BrokerError` `origin_not_permitted` when a request's headers break the rules. */
export type OriginCheck = (headers: { readonly host?: string | undefined; readonly origin?: string | undefined }) => void;

/** Makes the check. Throws `RangeError` when an allowed origin is not one. */
export function createOriginCheck(rules: OriginRules): OriginCheck {
  if (!rules.loopbackOnly) return () => undefined;
  const origins = new Set<string>();
  const hosts = new Set<string>();
  for (const allowed of rules.allowOrigins) {
    const url = URL.canParse(allowed) ? new URL(allowed) : undefined;
    if (url === undefined || url.host === "")
      throw new RangeError(`${JSON.stringify(allowed)} is not an origin such as https://app.example`);
    origins.add(originOf(url));
    hosts.add(url.hostname);
  }
  return ({ host, origin }) => {
    const hostname = hostnameOf(host);
    if (hostname === undefined || !(isLoopback(hostname) || hosts.has(hostname))) {
      throw refusal("Host", host);
    }
    if (origin !== undefined) {
      const url = URL.canParse(origin) ? new URL(origin) : undefined;
      if (url === undefined || !(origins.has(originOf(url)) || (isWeb(url) && isLoopback(url.hostname)))) throw refusal("Origin", origin);
    }
  };
}

function refusal(header: string, value: string | undefined): BrokerError {
  const shown = value === undefined ? "absent" : JSON.stringify(value.slice(0, 128));
  return new BrokerError(
    "origin_not_permitted",
    `The ${header} is ${shown}: a development broker answers loopback names only. Start it with --allow-origin to let others in.`,
  );
}

/** `URL.origin` is "null" for schemes such as `app:`, which desktop shells use. */
function originOf(url: URL): string {
  return `${url.protocol}//${url.host}`;
}

function isWeb(url: URL): boolean {
  return url.protocol === "http:" || url.protocol === "https:";
}

function hostnameOf(host: string | undefined): string | undefined {
  if (host === undefined || !/^[A-Za-z0-9.\-_[\]:]+$/.test(host)) return undefined;
  const text = `http://${host}`;
  return URL.canParse(text) ? new URL(text).hostname : undefined;
}

function isLoopback(hostname: string): boolean {
  const name = hostname.endsWith(".") ? hostname.slice(0, -1) : hostname;
  return name === "localhost" || name.endsWith(".localhost") || name === "[::1]" || /^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(name);
}
