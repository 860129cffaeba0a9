/** Logs of a broker: events with ids, as JSON lines on stderr. Payloads and secrets are never given to a log. */
import { pino } from "pino";
import type { Log, LogFields } from "../domain/ports/log.js";

export const LOG_LEVELS = ["debug", "info", "warn", "error", "silent"] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

export function createPinoLog(level: LogLevel): Log {
  const logger = pino(
    {
      level,
      base: null,
      messageKey: "event",
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
    },
    pino.destination({ fd: 2, sync: false }),
  );
  return {
    debug: (event, fields?: LogFields) => logger.debug(fields ?? {}, event),
    info: (event, fields?: LogFields) => logger.info(fields ?? {}, event),
    warn: (event, fields?: LogFields) => logger.warn(fields ?? {}, event),
    error: (event, fields?: LogFields) => logger.error(fields ?? {}, event),
  };
}

export const silentLog: Log = { debug: () => undefined, info: () => undefined, warn: () => undefined, error: () => undefined };
