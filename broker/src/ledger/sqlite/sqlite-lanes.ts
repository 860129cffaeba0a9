/**
 * The table of lanes in the ledger's database, written in the worker's own transactions.
 *
 * It is made when it is absent, whatever the schema's version: a broker that does not know it leaves it alone.
 */
import type Database from "better-sqlite3";
import type { LaneMember, LanePlace } from "../../domain/ports/lanes.js";

const LANES_SCHEMA = `
  CREATE TABLE IF NOT EXISTS lanes (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    lane TEXT NOT NULL,
    call_id TEXT NOT NULL,
    UNIQUE (lane, call_id)
  ) STRICT;
  CREATE INDEX IF NOT EXISTS lanes_in_order ON lanes (lane, place);
`;

/** All methods throw what SQLite throws. */
export interface SqliteLanes {
  /** Inside a transaction only. */
  join(lane: string, callId: string): LaneMember;
  first(lane: string): LaneMember | undefined;
  /** Inside a transaction only. */
  leave(lane: string, member: LaneMember): void;
}

export function openSqliteLanes(database: Database.Database): SqliteLanes {
  database.exec(LANES_SCHEMA);
  const insert = database.prepare<[string, string]>("INSERT INTO lanes (lane, call_id) VALUES (?, ?)");
  const find = database.prepare<[string, string], LanePlace>("SELECT place FROM lanes WHERE lane = ? AND call_id = ?").pluck();
  const first = database.prepare<[string], LaneMember>("SELECT call_id AS callId, place FROM lanes WHERE lane = ? ORDER BY place LIMIT 1");
  const remove = database.prepare<[LanePlace, string, string]>("DELETE FROM lanes WHERE place = ? AND lane = ? AND call_id = ?");
  return {
    join: (lane, callId) => ({ callId, place: find.get(lane, callId) ?? Number(insert.run(lane, callId).lastInsertRowid) }),
    first: (lane) => first.get(lane),
    leave: (lane, { callId, place }) => void remove.run(place, lane, callId),
  };
}
