/**
 * Connections to NATS as brokers need them: reconnecting for ever, quick to notice a dead peer,
 * and refused at start with one sentence that says what to do.
 */
import { readFileSync } from "node:fs";
import { jetstreamManager } from "@nats-io/jetstream";
import {
  type Authenticator,
  type ConnectionOptions,
  credsAuthenticator,
  type NatsConnection,
  tokenAuthenticator,
  usernamePasswordAuthenticator,
} from "@nats-io/nats-core";
import { connect, type NodeConnectionOptions } from "@nats-io/transport-node";
import { BusError } from "../../domain/ports/bus.js";
import type { Log } from "../../domain/ports/log.js";

export type NatsCredentials =
  /** The content of a `.creds` file. */
  | { readonly kind: "creds"; readonly text: string }
  | { readonly kind: "token"; readonly token: string }
  | { readonly kind: "password"; readonly user: string; readonly password: string };

export interface NatsTlsFiles {
  readonly caFile?: string | undefined;
  readonly certFile?: string | undefined;
  readonly keyFile?: string | undefined;
}

export interface ConnectNatsOptions {
  /** `nats://host:4222`, `tls://…`, several separated by commas; user and password, or a token, may be part of the first. */
  readonly url: string;
  /** Shown in the server's list of connections. */
  readonly name: string;
  readonly log: Log;
  /** Default: what the address holds, else none. */
  readonly credentials?: NatsCredentials | undefined;
  /** Default: TLS as the server asks for it, with the system's authorities. */
  readonly tls?: NatsTlsFiles | undefined;
  /** How long the first connection may take. Default 5,000. */
  readonly timeoutMs?: number | undefined;
}

const TIMEOUT_MS = 5_000;
const RECONNECT_WAIT_MS = 250;
const RECONNECT_JITTER_MS = 250;
/** A dead peer is noticed after three of these. */
const PING_INTERVAL_MS = 2_000;
const PINGS_OUT_MAX = 2;

/**
 * Connects and makes sure that JetStream answers.
 * Rejects with {@link BusError} `unreachable`: server away, credentials refused, or no JetStream; the message never holds credentials.
 */
export async function connectNats(options: ConnectNatsOptions): Promise<NatsConnection> {
  const { servers, shown, secure, credentials } = parseAddress(options.url);
  const timeout = options.timeoutMs ?? TIMEOUT_MS;
  const authenticator = toAuthenticator(options.credentials ?? credentials);
  const tls = secure || options.tls !== undefined ? definedOnly(options.tls ?? {}) : undefined;
  const settings: NodeConnectionOptions & ConnectionOptions = {
    servers,
    name: options.name,
    timeout,
    noAsyncTraces: true,
    maxReconnectAttempts: -1,
    reconnectTimeWait: RECONNECT_WAIT_MS,
    reconnectJitter: RECONNECT_JITTER_MS,
    reconnectJitterTLS: RECONNECT_JITTER_MS,
    pingInterval: PING_INTERVAL_MS,
    maxPingOut: PINGS_OUT_MAX,
    // Credentials may be wrong for a while, when they are rotated: only the first connection gives up on them.
    ignoreAuthErrorAbort: true,
    ...(authenticator === undefined ? {} : { authenticator }),
    ...(tls === undefined ? {} : { tls }),
  };

  let connection: NatsConnection;
  try {
    connection = await connect(settings);
  } catch (error) {
    throw new BusError(
      "unreachable",
      `Cannot connect to NATS at ${shown}: ${reason(error)}. Start nats-server there, or correct the address or credentials.`,
      {
        cause: error,
      },
    );
  }
  try {
    await untilJetStream(connection, timeout);
  } catch (error) {
    await connection.close();
    throw new BusError(
      "unreachable",
      `NATS at ${shown} has no JetStream: ${reason(error)}. Start nats-server with -js, and give the account JetStream.`,
      {
        cause: error,
      },
    );
  }
  options.log.info("nats_connected", { server: shown, version: connection.info?.version ?? "unknown" });
  return connection;
}

/** A server that has just started, or a cluster without a leader yet, needs a moment. */
async function untilJetStream(connection: NatsConnection, timeoutMs: number): Promise<void> {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    try {
      await jetstreamManager(connection, { timeout: Math.max(500, deadline - performance.now()) });
      return;
    } catch (error) {
      if (performance.now() + 200 >= deadline || connection.isClosed()) throw error;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }
}

interface Address {
  readonly servers: string[];
  /** Without credentials: what may be shown and logged. */
  readonly shown: string;
  readonly secure: boolean;
  readonly credentials: NatsCredentials | undefined;
}

function parseAddress(text: string): Address {
  const servers: string[] = [];
  let secure = false;
  let credentials: NatsCredentials | undefined;
  for (const part of text.split(",")) {
    const trimmed = part.trim();
    let url: URL;
    try {
      url = new URL(trimmed.includes("://") ? trimmed : `nats://${trimmed}`);
    } catch (error) {
      throw new BusError("unreachable", "The address of NATS is not a URL. Write nats://host:4222, several separated by commas.", {
        cause: error,
      });
    }
    if (!["nats:", "tls:"].includes(url.protocol) || url.hostname === "") {
      throw new BusError("unreachable", `${url.protocol}// is not an address of NATS. Write nats://host:4222 or tls://host:4222.`);
    }
    secure ||= url.protocol === "tls:";
    if (credentials === undefined && url.username !== "") {
      const user = decodeURIComponent(url.username);
      credentials =
        url.password === "" ? { kind: "token", token: user } : { kind: "password", user, password: decodeURIComponent(url.password) };
    }
    servers.push(url.host.includes(":") && url.port !== "" ? url.host : `${url.hostname}:4222`);
  }
  return { servers, shown: servers.map((server) => `${secure ? "tls" : "nats"}://${server}`).join(","), secure, credentials };
}

function toAuthenticator(credentials: NatsCredentials | undefined): Authenticator | undefined {
  switch (credentials?.kind) {
    case undefined:
      return undefined;
    case "creds":
      return credsAuthenticator(new TextEncoder().encode(credentials.text));
    case "token":
      return tokenAuthenticator(credentials.token);
    case "password":
      return usernamePasswordAuthenticator(credentials.user, credentials.password);
  }
}

function definedOnly(files: NatsTlsFiles): { ca?: string; cert?: string; key?: string } {
  return {
    ...(files.caFile === undefined ? {} : { ca: readFileSync(files.caFile, "utf8") }),
    ...(files.certFile === undefined ? {} : { cert: readFileSync(files.certFile, "utf8") }),
    ...(files.keyFile === undefined ? {} : { key: readFileSync(files.keyFile, "utf8") }),
  };
}

function reason(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const cause = error.cause instanceof Error && error.cause.message !== error.message ? ` (${error.cause.message})` : "";
  return `${error.message}${cause}`;
}
