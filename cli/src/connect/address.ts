/** Addresses of brokers as users write them: what they mean, and what is wrong with the others. */
import { isIP } from "node:net";
import { usageError } from "../errors.js";

/** Path of the runner WebSocket. */
export const RUNNER_PATH = "/v1/runner";

/** Where a runner dials. */
export type RunnerAddress =
  | { readonly transport: "websocket"; readonly url: string }
  | { readonly transport: "grpc"; readonly url: string };

/**
 * Reads `ws(s)://`, `grpc(s)://` or `http(s)://` (meaning its WebSocket). A WebSocket address without a path gets the runner's.
 * Throws a usage fault for anything else, and for credentials in the address: those end up in logs and process lists.
 */
export function parseRunnerAddress(text: string, where: string): RunnerAddress {
  const url = parseUrl(text, where);
  switch (url.protocol) {
    case "ws:":
    case "wss:":
    case "http:":
    case "https:": {
      const socket = new URL(url.href.replace(/^http/, "ws"));
      if (socket.pathname === "/" || socket.pathname === "") socket.pathname = RUNNER_PATH;
      return { transport: "websocket", url: socket.href };
    }
    case "grpc:":
    case "grpcs:":
      if (url.port === "")
        throw usageError(`${where} ${JSON.stringify(text)} names no port: gRPC addresses look like grpc://127.0.0.1:7071`);
      return { transport: "grpc", url: `${url.protocol}//${url.host}` };
    default:
      throw usageError(`${where} ${JSON.stringify(text)} is not an address of a broker: use ws(s)://, grpc(s):// or http(s)://`);
  }
}

/** Reads the `http(s)://` address that agents use; a path is refused, since requests bring their own. */
export function parseAgentAddress(text: string, where: string): string {
  const url = parseUrl(text, where);
  if (url.protocol !== "http:" && url.protocol !== "https:") {
    throw usageError(`${where} ${JSON.stringify(text)} is not an address that agents use: it begins with http:// or https://`);
  }
  if (url.pathname !== "/" || url.search !== "" || url.hash !== "") {
    throw usageError(`${where} ${JSON.stringify(text)} has more than host and port: use ${url.origin}`);
  }
  return url.origin;
}

function parseUrl(text: string, where: string): URL {
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw usageError(`${where} ${JSON.stringify(text)} is not a URL: it looks like http://127.0.0.1:7070`);
  }
  // The text is not repeated here: it holds a secret.
  if (url.username !== "" || url.password !== "")
    throw usageError(`${where} holds credentials: pass them by --key or --token, never in the address`);
  return url;
}

/** Whether only this machine reaches the host: 127.0.0.0/8, ::1 or localhost. */
export function isLoopback(host: string): boolean {
  const bare = host.replace(/^\[|\]$/g, "").toLowerCase();
  if (bare === "localhost") return true;
  if (isIP(bare) === 4) return bare.startsWith("127.");
  return bare === "::1";
}

/** Host of an address, without port. */
export function hostOf(address: string): string {
  return new URL(address.replace(/^grpc/, "http")).hostname;
}
