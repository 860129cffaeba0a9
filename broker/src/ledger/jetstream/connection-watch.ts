/**
 * Watches one NATS connection for the ledger: whether it is up, and whether the server at its other end may be used.
 *
 * Invariants (L1):
 * - `usable` is true only while the connection is up and its present server is new enough.
 * - Listeners are told of every change, and once more after each reconnect, since requests and subscriptions of the old
 *   connection may be lost without a word.
 */
import { connect as connectSocket } from "node:net";
import type { NatsConnection } from "@nats-io/nats-core";
import { LedgerError } from "../../domain/ports/ledger.js";
import type { Log } from "../../domain/ports/log.js";
import { guardSocket } from "./socket-guard.js";

/** Oldest nats-server for a stream that is not replicated. */
export const SERVER_MIN = "2.9.10";
/** Oldest nats-server for a replicated stream: older ones acknowledge several writers of one place. */
export const REPLICATED_SERVER_MIN = "2.10.27";

const PEEK_TIMEOUT_MS = 1_500;

/** Negative when `a` is older than `b`. A pre-release counts as its release. */
export function compareVersions(a: string, b: string): number {
  const [left, right] = [a, b].map((text) => (/^v?(\d+)\.(\d+)\.(\d+)/.exec(text) ?? []).slice(1, 4).map(Number));
  if (left === undefined || right === undefined || left.length === 0) return -1;
  for (let index = 0; index < 3; index += 1) {
    const difference = (left[index] ?? 0) - (right[index] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

export interface ConnectionWatch {
  /** Requests may be sent now. */
  readonly usable: boolean;
  /** Why the present server may not be used, if that is so. */
  readonly refusal: LedgerError | undefined;
  /** `listener` is called after each change of `usable` and after each reconnect. Returns how to stop that. */
  onChange(listener: () => void): () => void;
  /** Resolves when the connection is closed for good. */
  readonly closed: Promise<void>;
  stop(): void;
}

/** Starts to watch `connection`, whose servers must be at least `versionMin`. */
export function watchConnection(connection: NatsConnection, versionMin: string, log: Log): ConnectionWatch {
  const listeners = new Set<() => void>();
  let up = !connection.isClosed();
  let refusal = refusalOf(connection.info?.version ?? "", connection.getServer(), versionMin);
  let stopped = false;
  guardSocket(connection);
  const changed = (): void => {
    for (const listener of listeners) listener();
  };
  const follow = async (): Promise<void> => {
    for await (const status of connection.status()) {
      if (stopped) return;
      if (status.type === "disconnect") up = false;
      else if (status.type === "reconnect") {
        up = true;
        guardSocket(connection);
        refusal = refusalOf(connection.info?.version ?? "", connection.getServer(), versionMin);
        if (refusal !== undefined) log.error("ledger_server_unsupported", { server: connection.getServer(), reason: refusal.message });
      } else continue;
      changed();
    }
  };
  void follow();
  const closed = connection.closed().then(() => {
    up = false;
    if (!stopped) changed();
  });
  return {
    get usable() {
      return up && refusal === undefined;
    },
    get refusal() {
      return refusal;
    },
    onChange: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    closed,
    stop: () => {
      stopped = true;
      listeners.clear();
    },
  };
}

function refusalOf(version: string, server: string, versionMin: string): LedgerError | undefined {
  if (compareVersions(version, versionMin) >= 0) return undefined;
  const why =
    versionMin === REPLICATED_SERVER_MIN
      ? "older ones may acknowledge two writers of one place on a replicated stream"
      : "older ones were never tested";
  return new LedgerError(
    "unsupported_server",
    `nats-server ${version === "" ? "of unknown version" : version} at ${server} is too old: ${versionMin} or newer is needed (${why}). Update it` +
      (versionMin === REPLICATED_SERVER_MIN ? ", or use one replica" : ""),
  );
}

/**
 * Rejects with {@link LedgerError} `unsupported_server` when a server of the cluster that can be seen from here is too old:
 * the one that `connection` uses, and those that it advertises, each asked by the greeting it sends to everybody.
 */
export async function checkServers(connection: NatsConnection, versionMin: string, log: Log): Promise<void> {
  const own = refusalOf(connection.info?.version ?? "", connection.getServer(), versionMin);
  if (own !== undefined) throw own;
  const advertised = (connection.info?.connect_urls ?? []).filter((address) => address !== connection.getServer());
  const versions = await Promise.all(advertised.map(async (address) => ({ address, version: await greetingVersion(address) })));
  for (const { address, version } of versions) {
    if (version === undefined) {
      log.warn("ledger_server_not_seen", { server: address });
      continue;
    }
    const refusal = refusalOf(version, address, versionMin);
    if (refusal !== undefined) throw refusal;
  }
}

/** The version in the `INFO` line with which a server greets. `undefined` when it cannot be reached or greets otherwise. */
function greetingVersion(address: string): Promise<string | undefined> {
  const { hostname, port } = new URL(address.includes("://") ? address : `nats://${address}`);
  return new Promise((resolve) => {
    const socket = connectSocket({ host: hostname.replace(/^\[|\]$/g, ""), port: Number(port === "" ? "4222" : port) });
    let text = "";
    const end = (version: string | undefined): void => {
      socket.destroy();
      resolve(version);
    };
    socket.setTimeout(PEEK_TIMEOUT_MS, () => end(undefined));
    socket.on("error", () => end(undefined));
    socket.on("end", () => end(undefined));
    socket.on("data", (chunk) => {
      text += chunk.toString("utf8");
      if (!text.includes("\r\n") && text.length < 65_536) return;
      end(/^INFO .*"version"\s*:\s*"([^"]+)"/.exec(text)?.[1]);
    });
  });
}
