/** Where the SDK says what it does: an event name and fields. Ids, counts and codes only, never arguments or results (I10). */
export type LogLevel = "debug" | "info" | "warn" | "error";

/** Values of log fields. */
export type LogFields = Readonly<Record<string, string | number | boolean | null>>;

/** Takes one event. It may throw: the SDK goes on. */
export type Log = (event: string, fields: LogFields & { readonly level: LogLevel }) => void;

/** The log that the SDK writes to: never throws. */
export interface EventLog {
  debug(event: string, fields?: LogFields): void;
  info(event: string, fields?: LogFields): void;
  warn(event: string, fields?: LogFields): void;
  error(event: string, fields?: LogFields): void;
}

/** Wraps what the user gave; without one, nothing is logged. */
export function createEventLog(log: Log | undefined): EventLog {
  const at =
    (level: LogLevel) =>
    (event: string, fields: LogFields = {}): void => {
      if (log === undefined) return;
      try {
        log(event, { ...fields, level });
      } catch {
        // A log that fails must not cost a result.
      }
    };
  return { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") };
}
