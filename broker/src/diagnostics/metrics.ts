/**
 * The metrics of one broker: takes what the wire and the gateways tell, looks the rest up when somebody scrapes, and writes it
 * all in Prometheus' text format.
 *
 * Invariants: nothing is shared with another broker of the process; label values come from closed sets, or from the catalog within
 * a bound; a reader is told the names of its own application's tools only; one text is written at a time, however many ask for it, and
 * a long one gives way to the broker's work between metrics.
 */
import { setImmediate as nextTurn } from "node:timers/promises";
import { Registry } from "prom-client";
import type { Version } from "../domain/ports/ledger.js";
import type { Meter, MetricsSource, MetricsText, Readings } from "../domain/ports/meter.js";
import { createCallMeter } from "./call-tallies.js";
import { METRICS } from "./definitions.js";
import { distributions, expose, tallies } from "./families.js";
import { Holdings } from "./holdings.js";
import { watchProcess } from "./process-metrics.js";
import { OTHER, ToolBook } from "./tool-tallies.js";

/** What the metrics of a broker are made of. */
export interface MetricsOptions {
  /** The broker's release. */
  readonly version: string;
  /** Kind of its ledger. */
  readonly ledger: string;
  /** The codes of the error table: others are shown as `other`. */
  readonly errorCodes: Iterable<string>;
  /** Names of close codes: others are shown as `other`. */
  readonly closeReasons: Readonly<Record<number, string>>;
}

/** The metrics of one broker. */
export interface Metrics extends MetricsSource {
  readonly meter: Meter;
  /** From now on `readings` is asked at each scrape, and `indexed` for the version up to which the index of calls goes. */
  lookAt(readings: () => Readings, indexed: (() => Version) | undefined): void;
  /** Ends what watches the process. Idempotent. */
  stop(): void;
}

/** Methods that routes have; others are of the peer's choice. */
const METHODS: ReadonlySet<string> = new Set(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"]);
/** A text that takes longer to write than this lets other work come in between, at the end of a metric. */
const TURN_MS = 2;
/** A connection that broke has no close code of its own. */
const CONNECTION_LOST: Readonly<Record<number, string>> = { 1006: "connection_lost" };

/** Begins to watch the process; `stop` ends it. */
export function createMetrics(options: MetricsOptions): Metrics {
  const registry = new Registry();
  const book = new ToolBook(registry);
  const calls = createCallMeter(registry, book, new Set(options.errorCodes));
  const requests = createRequestTallies(registry);
  const reasons = new Map(Object.entries({ ...options.closeReasons, ...CONNECTION_LOST }).map(([code, name]) => [Number(code), name]));
  const opened = tallies(registry, METRICS.sessionsOpened);
  const closed = tallies(registry, METRICS.sessionsClosed);
  const refused = tallies(registry, METRICS.sessionsRefused);
  const received = tallies(registry, METRICS.framesReceived);
  const sent = tallies(registry, METRICS.framesSent);
  const meter: Meter = {
    ...calls,
    ...requests,
    sessionOpened: (transport, bindingKind) => opened.of(transport, bindingKind).add(),
    sessionClosed: (transport, bindingKind, code) => closed.of(transport, bindingKind, reasons.get(code) ?? OTHER).add(),
    sessionRefused: (code) => refused.of(code).add(),
    frameReceived: (transport, kind) => received.of(transport, kind).add(),
    frameSent: (transport, kind) => sent.of(transport, kind).add(),
  };

  expose(registry, METRICS.info, () => [{ labels: { version: options.version, ledger: options.ledger }, value: 1 }]);
  const holdings = new Holdings(registry, book);
  let look: (() => Readings) | undefined;
  let indexed: (() => Version) | undefined;
  const stopWatching = watchProcess(registry);

  async function write(application: string): Promise<MetricsText> {
    let turnBegan = performance.now();
    const pause = (): Promise<void> | undefined =>
      performance.now() - turnBegan < TURN_MS
        ? undefined
        : nextTurn().then(() => {
            turnBegan = performance.now();
          });
    book.readBy(application);
    if (look !== undefined) await holdings.take(look(), indexed?.(), pause);
    const parts: string[] = [];
    for (const { name } of Object.values(METRICS)) {
      parts.push(await registry.getSingleMetricAsString(name));
      await pause();
    }
    return { contentType: registry.contentType, text: `${parts.join("\n\n")}\n` };
  }

  let last: Promise<unknown> = Promise.resolve();
  /** Texts that are not begun yet, by their reader: who comes meanwhile gets the same. */
  const waiting = new Map<string, Promise<MetricsText>>();
  function read(application: string): Promise<MetricsText> {
    const same = waiting.get(application);
    if (same !== undefined) return same;
    const text = last.then(() => {
      waiting.delete(application);
      return write(application);
    });
    waiting.set(application, text);
    last = text.catch(() => undefined);
    return text;
  }

  return {
    meter,
    read,
    lookAt(readings, indexedVersion) {
      look = readings;
      indexed = indexedVersion;
    },
    stop: stopWatching,
  };
}

function createRequestTallies(registry: Registry): Pick<Meter, "httpRequest" | "grpcRequest" | "requestRefused"> {
  const http = tallies(registry, METRICS.httpRequests);
  const httpSeconds = distributions(registry, METRICS.httpSeconds);
  const grpc = tallies(registry, METRICS.grpcRequests);
  const grpcSeconds = distributions(registry, METRICS.grpcSeconds);
  const refusals = tallies(registry, METRICS.refusals);
  return {
    httpRequest(method, route, status, durationMs) {
      http.of(METHODS.has(method) ? method : OTHER, route, String(status)).add();
      httpSeconds.of(route).observe(durationMs / 1_000);
    },
    grpcRequest(method, status, durationMs) {
      grpc.of(method, status).add();
      grpcSeconds.of(method).observe(durationMs / 1_000);
    },
    requestRefused: (over, code) => refusals.of(over, code).add(),
  };
}
