/** The broker's HTTP interface as commands use it: one request, one JSON answer, refusals as {@link CliError}. */
import { CliError, type ErrorBody, EXIT, messageOf } from "./errors.js";

/** Query parameters; undefined ones are left out. */
export type Query = Readonly<Record<string, string | number | undefined>>;

/** An answer. */
export interface ApiAnswer {
  readonly status: number;
  readonly body: unknown;
}

/** What makes a request. */
export interface ApiRequest {
  readonly query?: Query;
  readonly body?: unknown;
  /** Longest time without an answer, in milliseconds. Default 30,000. */
  readonly timeoutMs?: number;
}

/** Requests to one broker with one key. */
export interface ApiClient {
  /** Throws {@link CliError} with exit code 4 when the broker refuses or does not answer. */
  request(method: "GET" | "PUT" | "POST" | "DELETE", path: string, request?: ApiRequest): Promise<ApiAnswer>;
}

/** Where requests go. */
export interface ApiTarget {
  /** `http://…` or `https://…`, without a path. */
  readonly url: string;
  /** Undefined: requests carry no key, and the broker says what it thinks of that. */
  readonly key: string | undefined;
}

/** Makes the client. */
export function createApiClient(target: ApiTarget): ApiClient {
  return {
    async request(method, path, request = {}) {
      const url = new URL(path, target.url);
      for (const [name, value] of Object.entries(request.query ?? {})) if (value !== undefined) url.searchParams.set(name, String(value));
      const headers: Record<string, string> = { accept: "application/json" };
      if (target.key !== undefined) headers["authorization"] = `Bearer ${target.key}`;
      if (request.body !== undefined) headers["content-type"] = "application/json";
      const answer = await send(url, {
        method,
        headers,
        signal: AbortSignal.timeout(request.timeoutMs ?? 30_000),
        ...(request.body === undefined ? {} : { body: JSON.stringify(request.body) }),
      });
      const body = parse(answer.text);
      if (answer.status >= 400) throw refusal(answer.status, body, url);
      return { status: answer.status, body };
    },
  };
}

async function send(url: URL, init: RequestInit): Promise<{ status: number; text: string }> {
  try {
    const response = await fetch(url, init);
    return { status: response.status, text: await response.text() };
  } catch (cause) {
    const reason = cause instanceof Error && cause.cause !== undefined ? messageOf(cause.cause) : messageOf(cause);
    throw unreachable(url.origin, reason, cause);
  }
}

/** Nobody answered at `origin`: exit code 4. */
export function unreachable(origin: string, reason: string, cause?: unknown): CliError {
  return new CliError(
    "unreachable",
    EXIT.refused,
    `no broker answers at ${origin} (${reason}): start one with \`toolrunner dev\`, or name another with --url or TOOLRUNNER_URL`,
    { cause },
  );
}

function parse(text: string): unknown {
  if (text === "") return null;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Whether a value is an error object of the HTTP interface. */
export function isErrorBody(value: unknown): value is ErrorBody {
  if (typeof value !== "object" || value === null || !("error" in value)) return false;
  const { error } = value;
  return typeof error === "object" && error !== null && "code" in error && "message" in error;
}

function refusal(status: number, body: unknown, url: URL): CliError {
  if (!isErrorBody(body)) {
    return new CliError(
      "refused",
      EXIT.refused,
      `${url.origin} answered ${status} to ${url.pathname}, which is not how a ToolRunner broker refuses: check --url`,
    );
  }
  return new CliError(body.error.code, EXIT.refused, refusalText(body), { body });
}

/** A refusal in one line: the message, then each detail. */
export function refusalText(body: ErrorBody): string {
  const details = (body.error.details ?? []).map(detailText).filter((text) => text !== "");
  return [`${body.error.code}: ${body.error.message}`, ...details].join("; ");
}

function detailText(detail: unknown): string {
  if (typeof detail !== "object" || detail === null) return "";
  const { path, expected, actual } = detail as { readonly [field: string]: unknown };
  return `${path === "" ? "the value" : String(path)}: expected ${String(expected)}, got ${String(actual)}`;
}
