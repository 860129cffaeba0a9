/**
 * Which broker a command talks to and with which credential. Each value is resolved once:
 * option, then environment, then `./.toolrunner/dev.json`, then the default.
 *
 * Invariants: a runner never gets the agent's key; a development credential is only ever sent to this machine.
 */
import { join } from "node:path";
import type { ApiTarget } from "../api-client.js";
import { CliError, EXIT, usageError } from "../errors.js";
import type { CliIo } from "../io.js";
import { hostOf, isLoopback, parseAgentAddress, parseRunnerAddress, type RunnerAddress } from "./address.js";
import { DATA_FOLDER, type DevFile, readDevFile } from "./dev-file.js";
import { tokenOfFile } from "./token-file.js";

/** Where agents find a broker that was started without options. */
export const DEFAULT_URL = "http://127.0.0.1:7070";

/** Options of commands that act for an agent. */
export interface AgentOptions {
  readonly url?: string | undefined;
  readonly key?: string | undefined;
}

/** Resolves `--url` and `--key`, `TOOLRUNNER_URL` and `TOOLRUNNER_KEY`. Throws usage faults. */
export async function resolveAgent(options: AgentOptions, io: Pick<CliIo, "env" | "cwd">): Promise<ApiTarget> {
  const dev = await devFileOf(io);
  const named = firstOf([options.url, "--url"], [io.env["TOOLRUNNER_URL"], "TOOLRUNNER_URL"], [dev?.http, "the address in dev.json"]);
  const url = parseAgentAddress(named?.[0] ?? DEFAULT_URL, named?.[1] ?? "the default");
  const key = options.key || io.env["TOOLRUNNER_KEY"] || (dev !== undefined && isLoopback(hostOf(url)) ? dev.agent_key : undefined);
  return { url, key };
}

/** The same, for commands that cannot go without a key. */
export async function resolveAgentWithKey(options: AgentOptions, io: Pick<CliIo, "env" | "cwd">): Promise<{ url: string; key: string }> {
  const { url, key } = await resolveAgent(options, io);
  if (key === undefined) {
    throw new CliError(
      "key_missing",
      EXIT.refused,
      `there is no key for ${url}: use --key or TOOLRUNNER_KEY, or run this in the folder where \`toolrunner dev\` was started`,
    );
  }
  return { url, key };
}

/** Options of `run` that say where to dial. */
export interface RunnerOptions {
  readonly url?: string | undefined;
  readonly token?: string | undefined;
  readonly tokenFile?: string | undefined;
}

/** Where a runner dials, and as whom. */
export interface RunnerTarget {
  readonly address: RunnerAddress;
  /** A function where the key is in a file, which is read for each connection. */
  readonly token: string | (() => Promise<string>);
}

/**
 * Resolves `--url`, `--token` and `--token-file`, `TOOLRUNNER_RUNNER_URL`, `TOOLRUNNER_RUNNER_TOKEN` and `TOOLRUNNER_RUNNER_TOKEN_FILE`.
 * Throws usage faults, and `token_file_invalid` when a file that is named holds no key now.
 */
export async function resolveRunner(options: RunnerOptions, io: Pick<CliIo, "env" | "cwd">): Promise<RunnerTarget> {
  const dev = await devFileOf(io);
  const named = firstOf(
    [options.url, "--url"],
    [io.env["TOOLRUNNER_RUNNER_URL"], "TOOLRUNNER_RUNNER_URL"],
    [dev?.ws, "the address in dev.json"],
  );
  const address = parseRunnerAddress(named?.[0] ?? DEFAULT_URL, named?.[1] ?? "the default");
  const token = (await namedToken(options, io)) ?? (dev !== undefined && isLoopback(hostOf(address.url)) ? dev.runner_token : undefined);
  if (token === undefined) {
    throw new CliError(
      "token_missing",
      EXIT.refused,
      `there is no runner token for ${address.url}: use --token, --token-file or TOOLRUNNER_RUNNER_TOKEN, or run this in the folder where \`toolrunner dev\` was started`,
    );
  }
  return { address, token };
}

/** Resolves the broker's HTTP address as for agents, and the runner key as for runners. Throws usage faults. */
export async function resolveRunnerApi(options: RunnerOptions, io: Pick<CliIo, "env" | "cwd">): Promise<ApiTarget> {
  const dev = await devFileOf(io);
  const { url } = await resolveAgent({ url: options.url }, io);
  const token = await namedToken(options, io);
  if (token !== undefined) return { url, key: typeof token === "string" ? token : await token() };
  return { url, key: dev !== undefined && isLoopback(hostOf(url)) ? dev.runner_token : undefined };
}

/** What the options name, else what the environment names. Naming a key twice in one place is a mistake that would hide which one counts. */
async function namedToken(options: RunnerOptions, io: Pick<CliIo, "env" | "cwd">): Promise<RunnerTarget["token"] | undefined> {
  const places = [
    { token: options.token, file: options.tokenFile, names: ["--token", "--token-file"] },
    {
      token: io.env["TOOLRUNNER_RUNNER_TOKEN"],
      file: io.env["TOOLRUNNER_RUNNER_TOKEN_FILE"],
      names: ["TOOLRUNNER_RUNNER_TOKEN", "TOOLRUNNER_RUNNER_TOKEN_FILE"],
    },
  ] as const;
  for (const { token, file, names } of places) {
    if (token && file) throw usageError(`${names[0]} and ${names[1]} both name a runner key: leave one of them out`);
    if (token) return token;
    if (!file) continue;
    const read = tokenOfFile(file, names[1], io.cwd);
    await read();
    return read;
  }
  return undefined;
}

function devFileOf(io: Pick<CliIo, "cwd">): Promise<DevFile | undefined> {
  return readDevFile(join(io.cwd, DATA_FOLDER));
}

function firstOf(...candidates: readonly (readonly [string | undefined, string])[]): readonly [string, string] | undefined {
  for (const [value, where] of candidates) if (value !== undefined && value !== "") return [value, where];
  return undefined;
}
