/** Starts HTTP gateways over fake operations on free ports, and talks to them. */

import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { createHttpGateway, type HttpGateway, type HttpGatewayOptions } from "../http/http-gateway.js";
import {
  createFakeAuthenticator,
  createFakeOperations,
  createRecordingLog,
  type FakeOperations,
  FULL_KEY,
  type RecordingLog,
  RUNNER_KEY,
} from "./fake-operations.js";

/** An answer, read whole. */
export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** `{}` when the text is no JSON object. */
  readonly json: Readonly<Record<string, unknown>>;
}

/** A gateway that listens. */
export interface TestGateway {
  readonly gateway: HttpGateway;
  readonly operations: FakeOperations;
  readonly log: RecordingLog;
  readonly url: string;
  readonly port: number;
  /** With {@link FULL_KEY}, or {@link RUNNER_KEY} where the address is one for runners, unless `headers` name another one. A string body is sent as it is. */
  request(method: string, path: string, body?: unknown, headers?: Readonly<Record<string, string>>): Promise<Answer>;
  /** A connected socket; closed with the gateway. */
  rawSocket(): Promise<Socket>;
}

/** The type of Prometheus' text format. */
export const METRICS_CONTENT = "text/plain; version=0.0.4; charset=utf-8";

const FOR_RUNNERS = /^\/v1\/calls\/[^/]*\/(updates|receipt)(\?|$)/;

const running = new Set<() => Promise<void>>();

/** Starts a gateway; `stopTestGateways` ends it. */
export async function startTestGateway(options: Partial<HttpGatewayOptions> = {}, onPort = 0): Promise<TestGateway> {
  const operations = createFakeOperations();
  const log = createRecordingLog();
  const gateway = createHttpGateway({
    operations,
    authenticator: createFakeAuthenticator(),
    health: { check: async () => [] },
    metrics: {
      read: async (application) => ({
        contentType: METRICS_CONTENT,
        text: `# HELP calls Of ${application}.\n# TYPE calls counter\ncalls 1\n`,
      }),
    },
    flush: { flush: async ({ receipts }) => receipts.map(() => ({ kind: "taken", disposition: "settled" })) },
    dev: { loopbackOnly: true, allowOrigins: [] },
    log,
    version: "0.0.0-test",
    ...options,
  });
  const { port } = await gateway.listen({ host: "127.0.0.1", port: onPort });
  const sockets = new Set<Socket>();
  running.add(async () => {
    for (const socket of sockets) socket.destroy();
    await gateway.close();
  });
  const url = `http://127.0.0.1:${port}`;
  return {
    gateway,
    operations,
    log,
    url,
    port,
    async request(method, path, body, headers = {}) {
      const response = await fetch(`${url}${path}`, {
        method,
        headers: {
          authorization: `Bearer ${FOR_RUNNERS.test(path) ? RUNNER_KEY : FULL_KEY}`,
          ...(body === undefined ? {} : { "content-type": "application/json" }),
          ...headers,
        },
        ...(body === undefined ? {} : { body: typeof body === "string" || body instanceof Buffer ? body : JSON.stringify(body) }),
      });
      const text = await response.text();
      return { status: response.status, headers: response.headers, text, json: objectIn(text) };
    },
    async rawSocket() {
      const socket = connect(port, "127.0.0.1");
      socket.on("error", () => socket.destroy());
      sockets.add(socket);
      await once(socket, "connect");
      return socket;
    },
  };
}

/** Ends every gateway that was started. */
export async function stopTestGateways(): Promise<void> {
  const stops = [...running];
  running.clear();
  await Promise.all(stops.map((stop) => stop()));
}

function objectIn(text: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

/** The error object in an answer. */
export function errorOf(answer: { readonly json: Readonly<Record<string, unknown>> }): {
  readonly code?: string;
  readonly message?: string;
  readonly type?: string;
  readonly details?: readonly { readonly path: string; readonly expected: string; readonly actual: string }[];
} {
  const { error } = answer.json;
  return typeof error === "object" && error !== null ? error : {};
}
