/** How many entries a ledger has taken since it was made, read from the store itself. */
import { join } from "node:path";
import { jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import Database from "better-sqlite3";
import { FLOOR_STREAM } from "./floor/jetstream-appends.js";
import { FLOOR_DATABASE } from "./floor/sqlite-appends.js";
import type { LedgerPlace, Side } from "./processes/roles.js";

/** The product's ledger, its index of open calls and its large values; the catalog is not a part of it. */
const PRODUCT_STREAMS = ["tr_calls", "tr_index", "tr_blobs"];

export async function ledgerWrites(side: Side, place: LedgerPlace): Promise<number> {
  if (place.kind === "jetstream") return streamWrites(place.url, side === "product" ? PRODUCT_STREAMS : [FLOOR_STREAM]);
  return rowsWritten(join(place.dataDir, side === "product" ? "ledger.db" : FLOOR_DATABASE));
}

/** Versions are never given out twice: the newest is the count. */
function rowsWritten(file: string): number {
  const database = new Database(file, { readonly: true });
  try {
    return database.prepare<[], number>("SELECT coalesce(max(version), 0) FROM entries").pluck().get() ?? 0;
  } finally {
    database.close();
  }
}

async function streamWrites(url: string, streams: readonly string[]): Promise<number> {
  const connection = await connect({ servers: url });
  try {
    const manager = await jetstreamManager(connection);
    let writes = 0;
    for (const stream of streams) writes += (await manager.streams.info(stream)).state.last_seq;
    return writes;
  } finally {
    await connection.close();
  }
}
