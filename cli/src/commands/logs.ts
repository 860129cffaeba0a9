/** Log lines on standard error: what `--log-level` means, and the runner's log as JSON events. */
import type { Log } from "@toolrunner/runner-sdk";
import { Option } from "commander";
import type { CliIo } from "../io.js";

const LOG_LEVELS = ["debug", "info", "warn", "error", "silent"] as const;

/** From all to nothing. */
export type LogLevel = (typeof LOG_LEVELS)[number];

/** `--log-level`. */
export function logLevelOption(standard: LogLevel): Option {
  return new Option("--log-level <level>", "which log lines go to standard error, as JSON").choices(LOG_LEVELS).default(standard);
}

/** A log of the runner SDK that prints events of this level and above. */
export function runnerLog(level: LogLevel, io: Pick<CliIo, "err">): Log {
  const least = LOG_LEVELS.indexOf(level);
  return (event, { level: own, ...fields }) => {
    if (LOG_LEVELS.indexOf(own) < least) return;
    io.err(`${JSON.stringify({ level: own, time: new Date().toISOString(), event, ...fields })}\n`);
  };
}
