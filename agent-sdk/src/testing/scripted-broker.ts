/** An HTTP server on a free port that answers as a test tells it, and a time that a test moves. */

import { createServer, type IncomingHttpHeaders, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import type { RetryTime } from "../retry.js";
import type { Call, CallState } from "../types.js";

/** A request as it arrived. */
export interface ScriptedRequest {
  /** Method and address. */
  readonly line: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: Readonly<Record<string, unknown>>;
  /** 1 for the first. */
  readonly number: number;
}

/** What to do with a request: an answer, or the response to use freely. */
export type Script = (request: ScriptedRequest, response: ServerResponse) => ScriptedAnswer | undefined;

/** An answer as JSON; a string body is sent as it is. */
export interface ScriptedAnswer {
  readonly status: number;
  readonly body: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

/** The server. */
export interface ScriptedBroker {
  readonly url: string;
  readonly requests: readonly ScriptedRequest[];
  readonly openResponses: number;
  close(): Promise<void>;
}

/** Starts the server. */
export async function startScriptedBroker(script: Script): Promise<ScriptedBroker> {
  const requests: ScriptedRequest[] = [];
  const sockets = new Set<Socket>();
  let openResponses = 0;
  const server = createServer((request, response) => {
    openResponses += 1;
    response.once("close", () => {
      openResponses -= 1;
    });
    let text = "";
    request.setEncoding("utf8").on("data", (chunk: string) => {
      text += chunk;
    });
    request.on("end", () => {
      const scripted: ScriptedRequest = {
        line: `${request.method} ${request.url}`,
        headers: request.headers,
        body: text === "" ? {} : (JSON.parse(text) as Record<string, unknown>),
        number: requests.length + 1,
      };
      requests.push(scripted);
      const answer = script(scripted, response);
      if (answer === undefined) return;
      response.writeHead(answer.status, { "content-type": "application/json", ...answer.headers });
      response.end(typeof answer.body === "string" ? answer.body : JSON.stringify(answer.body));
    });
  });
  server.on("connection", (socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    get openResponses() {
      return openResponses;
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  };
}

/** A call in a state. */
export function callIn(state: CallState, more: Partial<Call> = {}): Call {
  return {
    type: "call",
    id: "call_1",
    state,
    toolset: "shop",
    toolset_version: 1,
    tool: "refund",
    binding: "shop",
    agent: null,
    subject: null,
    session: null,
    attempt: 1,
    waiting_for: null,
    created_at: "2026-01-01T00:00:00.000Z",
    deadline_at: null,
    settled_at: null,
    receipt: null,
    result: null,
    result_ref: null,
    error: null,
    model_result: null,
    ...more,
  };
}

/** A refusal as the broker writes it. */
export function refusal(status: number, code: string, more: object = {}, headers: Readonly<Record<string, string>> = {}): ScriptedAnswer {
  return {
    status,
    headers,
    body: { type: "error", error: { type: "some_error", code, message: `It is ${code}.`, details: [], ...more }, request_id: "req_1" },
  };
}

/** A time that moves when it is told to, or when somebody pauses. */
export interface ManualTime extends RetryTime {
  advance(ms: number): void;
  readonly pauses: readonly number[];
}

/** Makes a time whose pauses are over at once. */
export function createManualTime(): ManualTime {
  let now = 0;
  const pauses: number[] = [];
  return {
    pauses,
    now: () => now,
    random: () => 0.5,
    advance(ms) {
      now += ms;
    },
    async pause(delayMs) {
      pauses.push(delayMs);
      now += delayMs;
    },
  };
}
