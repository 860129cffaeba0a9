/** The address of a broker's WebSocket for runners. */
import { RunnerConfigError } from "./errors.js";

const RUNNER_PATH = "/v1/runner";
const SCHEMES: Readonly<Record<string, string>> = { "ws:": "ws:", "wss:": "wss:", "http:": "ws:", "https:": "wss:" };

/** Reads what a user gave; without a path, `/v1/runner` is meant. @throws RunnerConfigError for another address. */
export function runnerAddress(url: string): URL {
  const address = URL.canParse(url) ? new URL(url) : null;
  const scheme = address === null ? undefined : SCHEMES[address.protocol];
  if (address === null || scheme === undefined) {
    throw new RunnerConfigError("options_invalid", "not a WebSocket address: give ws://host:port or wss://host:port");
  }
  if (address.username !== "" || address.password !== "") {
    throw new RunnerConfigError("options_invalid", "no credentials in the address: give the runner's key as `token`");
  }
  address.protocol = scheme;
  address.hash = "";
  if (address.pathname === "/") address.pathname = RUNNER_PATH;
  return address;
}
