/** Lines of nats-server that ToolRunner is tested with: 2.9.10 (the oldest supported) and 2.10.27 (the oldest that may replicate). */
export type NatsServerLine = "2.9" | "2.10";
/** Paths of both binaries, fetched when missing. Rejects with an error that says what to do. */
export function ensureNatsServers(): Promise<Record<NatsServerLine, string>>;
/** The path of one binary, fetched when missing. Rejects with an error that says what to do. */
export function ensureNatsServer(line: NatsServerLine): Promise<string>;
