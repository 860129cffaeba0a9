/** `dev` and `broker`: the same broker, embedded on SQLite for one machine, or on NATS for many. */
import { randomBytes } from "node:crypto";
import { resolve } from "node:path";
import type { Broker, BrokerOptions, Scope, StaticKey } from "@toolrunner/broker";
import { type Command, Option } from "commander";
import { isLoopback } from "../connect/address.js";
import { DATA_FOLDER, devFilePath, readDevFile, writeDevFile } from "../connect/dev-file.js";
import { EXIT, type ExitCode, messageOf, startError, usageError } from "../errors.js";
import { DAY_MS, repeated, retentionDays, seconds, wholeNumber } from "../input.js";
import { type CliIo, printJson } from "../io.js";
import { type CommandContext, command, type JsonOption } from "./command.js";
import { type LogLevel, logLevelOption } from "./logs.js";
import { DRAIN_MS_DEFAULT, type Served, serveUntilStopped } from "./serve.js";

interface ListenOptions extends JsonOption {
  readonly host: string;
  readonly port: number;
  readonly grpcPort: number;
  readonly grpc: boolean;
  readonly allowOrigin?: readonly string[];
  readonly logLevel: LogLevel;
  readonly drainSeconds: number;
  readonly index: boolean;
  readonly retentionDays: number | "never";
}

const anyPort = wholeNumber(0, 65_535);

function listening(made: Command, logLevel: LogLevel): Command {
  return made
    .option("--host <host>", "where to listen", "127.0.0.1")
    .option("--port <port>", "HTTP and WebSocket; 0 picks a free one", anyPort, 7070)
    .option("--grpc-port <port>", "gRPC; 0 picks a free one", anyPort, 7071)
    .option("--no-grpc", "do not listen for gRPC")
    .option("--allow-origin <origin>", "let pages of this origin in; can be repeated", repeated)
    .option("--no-index", "keep no index for listing calls")
    .addOption(
      new Option("--retention-days <n>", "how long settled calls are kept; a fraction, or never removed with `never`")
        .env("TOOLRUNNER_RETENTION_DAYS")
        .argParser(retentionDays)
        .default(7),
    )
    .addOption(logLevelOption(logLevel))
    .option("--drain-seconds <n>", "longest drain at SIGTERM", seconds(3_600), DRAIN_MS_DEFAULT / 1000);
}

/** `toolrunner dev` */
export function devCommand({ io, act }: CommandContext): Command {
  return listening(command("dev", "start an embedded broker on this machine (SQLite)"), "warn")
    .option("--data <folder>", "where calls, the catalog and dev.json are kept", `./${DATA_FOLDER}`)
    .action(act((options: ListenOptions & { readonly data: string }) => dev(options, io)));
}

function dev(options: ListenOptions & { readonly data: string }, io: CliIo): Promise<ExitCode> {
  return serve(options, io, async () => {
    const dataDir = resolve(io.cwd, options.data);
    const admin = await bootstrapKey(options.host, io);
    const development = isLoopback(options.host);
    if (!development && admin === undefined) {
      throw startError(
        "development_keys_exposed",
        `development keys are for this machine only, and ${options.host} can be reached from others: leave --host out, or set TOOLRUNNER_BOOTSTRAP_KEY to a key of your own`,
      );
    }
    const keys = development ? await developmentKeys(dataDir) : undefined;
    const broker = await started(
      {
        mode: "dev",
        store: { kind: "sqlite", dataDir },
        ...listenOptions(options),
        staticKeys: [...(admin?.keys ?? []), ...(keys === undefined ? [] : staticKeysOf(keys))],
      },
      options.logLevel,
    );
    if (keys !== undefined) {
      try {
        await writeDevFile(dataDir, { ...broker.addresses, ...keys, pid: process.pid });
      } catch (cause) {
        await broker.stop({ drainMs: 0 });
        throw cause;
      }
    }
    const facts = [
      ["data", dataDir],
      ["keys", keys === undefined ? "TOOLRUNNER_BOOTSTRAP_KEY, and those made with it" : devFilePath(dataDir)],
    ] as const;
    return { broker, keys: keys ?? {}, facts, insecure: admin?.insecure ?? [] };
  });
}

interface DevelopmentKeys {
  readonly agent_key: string;
  readonly runner_token: string;
}

/** Those of the last run, so that clients survive a restart, else new ones. */
async function developmentKeys(dataDir: string): Promise<DevelopmentKeys> {
  const earlier = await readDevFile(dataDir);
  const fresh = (kind: string): string => `${kind}_dev_${randomBytes(24).toString("base64url")}`;
  return { agent_key: earlier?.agent_key ?? fresh("agent"), runner_token: earlier?.runner_token ?? fresh("runner") };
}

function staticKeysOf(keys: DevelopmentKeys): readonly StaticKey[] {
  return [
    adminKey("dev", keys.agent_key),
    { kind: "runner", id: "dev-runner", key: keys.runner_token, application: "default", binding: "*", mayNameSubject: true },
  ];
}

const ALL_SCOPES = [
  "calls:write",
  "calls:read",
  "confirm",
  "catalog:write",
  "diagnostics:read",
  "admin",
] as const satisfies readonly Scope[];

function adminKey(id: string, key: string): StaticKey {
  return { kind: "agent", id, key, application: "default", scopes: ALL_SCOPES };
}

/** `toolrunner broker` */
export function brokerCommand({ io, act }: CommandContext): Command {
  return listening(command("broker", "start a broker on NATS; any number of them share one"), "info")
    .option("--nats <url>", "nats://… (else TOOLRUNNER_NATS_URL)")
    .addOption(new Option("--replicas <n>", "copies of each entry, on a NATS cluster").choices(["1", "3"]).default("1"))
    .option("--prefix <name>", "name of streams and buckets, so that several deployments share one NATS")
    .action(act((options: BrokerCommandOptions) => broker(options, io)));
}

interface BrokerCommandOptions extends ListenOptions {
  readonly nats?: string;
  readonly replicas: "1" | "3";
  readonly prefix?: string;
}

function broker(options: BrokerCommandOptions, io: CliIo): Promise<ExitCode> {
  const url = options.nats || io.env["TOOLRUNNER_NATS_URL"];
  if (!url) throw usageError("a broker needs NATS: name it with --nats nats://… or TOOLRUNNER_NATS_URL (`toolrunner dev` needs none)");
  return serve(options, io, async () => {
    const admin = await bootstrapKey(options.host, io);
    const running = await started(
      {
        mode: "broker",
        store: {
          kind: "nats",
          url,
          replicas: options.replicas === "3" ? 3 : 1,
          ...(options.prefix === undefined ? {} : { prefix: options.prefix }),
        },
        ...listenOptions(options),
        staticKeys: admin?.keys ?? [],
      },
      options.logLevel,
    );
    const keys =
      admin === undefined
        ? "those made before (set TOOLRUNNER_BOOTSTRAP_KEY to make the first one)"
        : "TOOLRUNNER_BOOTSTRAP_KEY, and those made with it";
    return { broker: running, keys: {}, facts: [["keys", keys]], insecure: admin?.insecure ?? [] };
  });
}

interface BootstrapKey {
  readonly keys: readonly StaticKey[];
  readonly insecure: readonly string[];
}

/** The operator's own admin key. One that could be guessed is refused where others can try, and pointed out where they cannot. */
async function bootstrapKey(host: string, io: CliIo): Promise<BootstrapKey | undefined> {
  const key = io.env["TOOLRUNNER_BOOTSTRAP_KEY"];
  if (!key) return undefined;
  const { BootstrapKeyError, checkBootstrapKey } = await import("@toolrunner/broker");
  const keys = [adminKey("bootstrap", key)];
  try {
    checkBootstrapKey(key);
    return { keys, insecure: [] };
  } catch (cause) {
    if (!(cause instanceof BootstrapKeyError)) throw cause;
    const guessable = cause.code === "too_short" || cause.code === "too_uniform";
    if (guessable && isLoopback(host)) return { keys, insecure: [cause.message] };
    throw startError("key_invalid", `TOOLRUNNER_BOOTSTRAP_KEY cannot be used: ${cause.message}`, cause);
  }
}

function listenOptions(options: ListenOptions): Pick<BrokerOptions, "http" | "grpc" | "allowOrigins" | "index" | "retentionMs"> {
  return {
    http: { host: options.host, port: options.port },
    grpc: options.grpc ? { host: options.host, port: options.grpcPort } : null,
    allowOrigins: options.allowOrigin ?? [],
    index: options.index,
    retentionMs: options.retentionDays === "never" ? "never" : Math.round(options.retentionDays * DAY_MS),
  };
}

/** Start-up faults of the broker say themselves what was wrong and what to do. The broker is loaded only now: most commands need none of it. */
async function started(options: Omit<BrokerOptions, "log">, logLevel: LogLevel): Promise<Broker> {
  const { createBroker, createPinoLog } = await import("@toolrunner/broker");
  try {
    return await createBroker({ ...options, ...(logLevel === "silent" ? {} : { log: createPinoLog(logLevel) }) });
  } catch (cause) {
    const code = cause instanceof Error && "code" in cause && typeof cause.code === "string" ? cause.code : "start_failed";
    throw startError(code, messageOf(cause), cause);
  }
}

interface Started {
  readonly broker: Broker;
  readonly keys: Partial<DevelopmentKeys>;
  readonly facts: readonly (readonly [name: string, text: string])[];
  readonly insecure: readonly string[];
}

/** Starts a broker, says that it is ready, and keeps it until it is stopped. */
function serve(options: ListenOptions, io: CliIo, starting: () => Promise<Started>): Promise<ExitCode> {
  const say = (line: string): void => {
    if (!options.json) io.out(`${line}\n`);
  };
  const begin = async (): Promise<Served> => {
    const { broker, keys, facts, insecure } = await starting();
    const { addresses, durability } = broker;
    if (options.json) printJson(io, { event: "ready", ...addresses, ...keys });
    say("ToolRunner listens");
    const lines: Started["facts"] = [
      ["http", addresses.http],
      ["runners", [addresses.ws, addresses.grpc].filter((each) => each !== null).join("  ")],
      ...facts,
      ["durable", durability],
      ...[...insecure, ...broker.insecure].map((text) => ["insecure", text] as const),
    ];
    for (const [name, text] of lines) say(`  ${name.padEnd(9)} ${text}`);
    return {
      stop: (drainMs) => broker.stop({ drainMs }),
      ended: broker.closed.then(() => ({ message: "the broker stopped by itself: its log says why", exitCode: EXIT.failed })),
    };
  };
  return serveUntilStopped(begin, options.drainSeconds * 1000, io, say);
}
