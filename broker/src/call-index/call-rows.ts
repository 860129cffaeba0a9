/**
 * The tables of the call index: one row for each call, and the place in the ledger up to which the rows are right.
 *
 * What a row costs must not grow with the rows that are there. So only what has many values, and is looked for, has an index of
 * its own: subject and session, and the ids of open calls. For what has few values, `spans` says in which stretches of the ledger
 * a call has each of them; it gets a row for each value of a stretch, not for each call.
 *
 * Invariants:
 * - Rows, spans and place are written in one transaction, so the file is always the picture of one ledger version.
 * - A value that a call has is in `spans` for the call's stretch: names from the beginning, states once they are settled.
 */
import type Database from "better-sqlite3";
import type { CallNames } from "../domain/call/entry-note.js";
import { type CallStateName, OPEN_STATES } from "../domain/call-view.js";
import type { Version } from "../domain/ports/ledger.js";

/** What a call can be found by, in the order in which the index on a column is preferred: the choosier first. An open state comes third. */
export const FILTER_COLUMNS = ["session", "subject", "agent", "tool", "toolset", "binding", "state"] as const;
export type FilterColumn = (typeof FILTER_COLUMNS)[number];

/** A call as it is after an entry. Its row is made with its names, and without them only changed. */
export interface RowChange {
  /** Version of the call's first entry: the order of creation, and the row's key. */
  readonly opened: Version;
  readonly callId: string;
  readonly state: CallStateName;
  /** Version of the call's last entry, as far as it is kept: of open calls. */
  readonly last: Version;
  readonly application: string;
  /** Of a call that has no row yet. */
  readonly names: CallNames | undefined;
}

export interface OpenRow {
  readonly opened: Version;
  readonly application: string;
  readonly state: CallStateName;
  readonly last: Version;
}

/** How far the rows go, and one entry by which the ledger is recognised. */
export interface LedgerPlace {
  /** Version of the last entry that was looked at; 0 for none. */
  readonly version: Version;
  readonly anchor: { readonly callId: string; readonly version: Version; readonly entryId: string } | null;
}

export const NO_PLACE: LedgerPlace = { version: 0, anchor: null };

export interface RowQuery {
  readonly application: string;
  /** Null: the column is not filtered. */
  readonly filter: Readonly<Record<FilterColumn, string | null>>;
  /** Only calls accepted before this version; null for the first page. */
  readonly before: Version | null;
  /** Rows to find, at most. */
  readonly limit: number;
  /** Rows to look at, at most, where several filters are given: a rare combination must not hold the process up. */
  readonly lookAtMax: number;
}

export interface FoundRows {
  readonly calls: readonly { readonly opened: Version; readonly callId: string }[];
  /** Where the next query goes on (its `before`); null when there is nothing more. With it fewer calls than `limit` may be found. */
  readonly next: Version | null;
}

/** Columns with an index of their own: their values are many. */
const INDEXED = ["session", "subject"] as const;
/** Columns whose values are few. For each value the table `spans` says in which stretches of the ledger a call has it. */
const SPANNED = ["agent", "tool", "toolset", "binding", "state"] as const;
/** Versions in a stretch: half as many calls, or fewer. */
const SPAN = 512;
/** Values of stretches that are known to be written, at most. */
const SPANS_KNOWN_MAX = 20_000;
/** Stands in `spans` for the application itself. */
const ANY = "";

const OPEN = `state IN (${OPEN_STATES.map((state) => `'${state}'`).join(", ")})`;

/** Makes the tables in an empty database. */
export function createTables(database: Database.Database): void {
  database.exec(`
      CREATE TABLE calls (
        opened INTEGER PRIMARY KEY, last INTEGER NOT NULL, call_id TEXT NOT NULL, application TEXT NOT NULL, state TEXT NOT NULL,
        tool TEXT NOT NULL, toolset TEXT NOT NULL, binding TEXT NOT NULL, agent TEXT, subject TEXT, session TEXT
      );
      CREATE TABLE spans (
        application TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, span INTEGER NOT NULL,
        PRIMARY KEY (application, name, value, span)
      ) WITHOUT ROWID;
      CREATE TABLE place (
        one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL, anchor_call TEXT, anchor_version INTEGER, anchor_entry TEXT
      );
      INSERT INTO place VALUES (1, 0, NULL, NULL, NULL);
      ${INDEXED.map((column) => `CREATE INDEX calls_by_${column} ON calls (application, ${column}) WHERE ${column} IS NOT NULL;`).join("\n")}
      CREATE INDEX calls_by_state ON calls (application, state) WHERE ${OPEN};
      CREATE INDEX open_calls ON calls (call_id) WHERE ${OPEN};
  `);
}

type SpannedColumn = (typeof SPANNED)[number];

const spanOf = (version: Version): number => Math.floor(version / SPAN);
const isOpen = (state: string | null): boolean => (OPEN_STATES as readonly (string | null)[]).includes(state);

/** The rows of an open index file. Every method may throw what SQLite throws. */
export class CallRows {
  readonly #database: Database.Database;
  readonly #queries = new Map<string, Database.Statement>();
  readonly #insert: Database.Statement;
  readonly #update: Database.Statement;
  readonly #putSpan: Database.Statement;
  readonly #putPlace: Database.Statement;
  readonly #remove: Database.Statement<[Version, string], RemovedRow>;
  readonly #removeSpan: Database.Statement;
  readonly #openRow: Database.Statement<[string], OpenRow>;
  readonly #write: (changes: Iterable<RowChange>, place: LedgerPlace) => void;
  /** Stretches and values that `spans` has, and of each name the one that was put last. */
  readonly #spans = new Set<string>();
  readonly #lastSpans = new Map<string, { span: number; value: string; application: string }>();

  constructor(database: Database.Database) {
    this.#database = database;
    this.#insert = database.prepare(
      `INSERT INTO calls (opened, last, call_id, application, state, tool, toolset, binding, agent, subject, session)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    );
    this.#update = database.prepare("UPDATE calls SET state = ?, last = ? WHERE opened = ?");
    this.#putSpan = database.prepare("INSERT OR IGNORE INTO spans (application, name, value, span) VALUES (?, ?, ?, ?)");
    this.#remove = database.prepare(
      `DELETE FROM calls WHERE opened = ? AND call_id = ? RETURNING opened, application, ${SPANNED.join(", ")}`,
    );
    this.#removeSpan = database.prepare("DELETE FROM spans WHERE application = ? AND name = ? AND value = ? AND span = ?");
    this.#putPlace = database.prepare("UPDATE place SET version = ?, anchor_call = ?, anchor_version = ?, anchor_entry = ?");
    this.#openRow = database.prepare(
      `SELECT opened, application, state, last FROM calls INDEXED BY open_calls WHERE call_id = ? AND ${OPEN}`,
    );
    this.#write = database.transaction((changes: Iterable<RowChange>, place: LedgerPlace) => {
      for (const change of changes) {
        this.#put(change);
      }
      this.#putPlace.run(place.version, place.anchor?.callId ?? null, place.anchor?.version ?? null, place.anchor?.entryId ?? null);
    });
  }

  /** How far the rows go. */
  place(): LedgerPlace {
    const row = this.#database.prepare("SELECT version, anchor_call, anchor_version, anchor_entry FROM place").raw().get();
    if (!Array.isArray(row)) {
      return NO_PLACE;
    }
    const [version, callId, anchorVersion, entryId]: readonly unknown[] = row;
    const anchor =
      typeof callId === "string" && typeof anchorVersion === "number" && typeof entryId === "string"
        ? { callId, version: anchorVersion, entryId }
        : null;
    return typeof version === "number" ? { version, anchor } : NO_PLACE;
  }

  /** Writes rows and place together, or neither. */
  write(changes: Iterable<RowChange>, place: LedgerPlace): void {
    try {
      this.#write(changes, place);
    } catch (error) {
      // What was put into `spans` with them is not there either.
      this.#forgetSpans();
      throw error;
    }
  }

  #put({ opened, callId, application, state, last, names }: RowChange): void {
    const span = spanOf(opened);
    if (!isOpen(state)) {
      this.#span(application, "state", state, span);
    }
    if (names === undefined) {
      this.#update.run(state, last, opened);
      return;
    }
    const { tool, toolset, binding, agent, subject, session } = names;
    this.#insert.run(opened, last, callId, application, state, tool, toolset, binding, agent, subject, session);
    this.#span(application, ANY, "", span);
    this.#span(application, "tool", tool, span);
    this.#span(application, "toolset", toolset, span);
    this.#span(application, "binding", binding, span);
    if (agent !== null) {
      this.#span(application, "agent", agent, span);
    }
  }

  /** Deletes the rows of these calls, and from `spans` what only they had. */
  remove(calls: readonly { readonly callId: string; readonly opened: Version }[]): void {
    this.#database.transaction(() => {
      const gone = calls.map((call) => this.#remove.get(call.opened, call.callId)).filter((row) => row !== undefined);
      for (const { application, name, value, span } of spansOf(gone)) {
        const term = name === ANY ? "" : `AND ${name} = ?`;
        const others = this.#select(`SELECT 1 FROM calls WHERE opened >= ? AND opened < ? AND application = ? ${term} LIMIT 1`);
        const values = name === ANY ? [] : [value];
        if (others.get(span * SPAN, (span + 1) * SPAN, application, ...values) === undefined) {
          this.#removeSpan.run(application, name, value, span);
        }
      }
    })();
    this.#forgetSpans();
  }

  #span(application: string, name: SpannedColumn | typeof ANY, value: string, span: number): void {
    const last = this.#lastSpans.get(name);
    if (last !== undefined && last.span === span && last.value === value && last.application === application) {
      return;
    }
    this.#lastSpans.set(name, { span, value, application });
    const key = `${span} ${name} ${value} ${application}`;
    if (this.#spans.has(key)) {
      return;
    }
    this.#putSpan.run(application, name, value, span);
    if (this.#spans.size >= SPANS_KNOWN_MAX) {
      this.#spans.clear();
    }
    this.#spans.add(key);
  }

  #forgetSpans(): void {
    this.#spans.clear();
    this.#lastSpans.clear();
  }

  /** Forgets everything: the ledger is another one. */
  clear(): void {
    this.#forgetSpans();
    this.#database.transaction(() => {
      this.#database.exec("DELETE FROM calls; DELETE FROM spans");
      this.#putPlace.run(0, null, null, null);
    })();
  }

  /** The row of an open call; undefined when there is none, or the call has settled. */
  openRow(callId: string): OpenRow | undefined {
    return this.#openRow.get(callId);
  }

  /** Matching calls, the last accepted first. */
  find(query: RowQuery): FoundRows {
    const { filter } = query;
    const by = INDEXED.find((column) => filter[column] !== null) ?? (isOpen(filter.state) ? "state" : undefined);
    return by === undefined ? this.#findBySpans(query) : this.#findByIndex(query, by);
  }

  #findByIndex(query: RowQuery, by: FilterColumn): FoundRows {
    const filtered = FILTER_COLUMNS.filter((column) => query.filter[column] !== null);
    const start = query.before ?? Number.MAX_SAFE_INTEGER;
    const border = filtered.length > 1 ? this.#border(by, start, query) : undefined;
    const found = this.#select(
      `SELECT opened, call_id AS callId FROM calls INDEXED BY calls_by_${by} WHERE application = ? ${equal(filtered)} ${indexTerm(by)}
       AND opened < ? AND opened >= ? ORDER BY opened DESC LIMIT ?`,
    ).all(query.application, ...valuesOf(query, filtered), start, border ?? 0, query.limit + 1) as Found[];
    return foundOf(found, query.limit, border ?? null);
  }

  /** The last row that may be looked at; undefined when it is the last of all. The index alone answers this. */
  #border(by: FilterColumn, start: Version, query: RowQuery): Version | undefined {
    const rows = this.#select(
      `SELECT opened FROM calls INDEXED BY calls_by_${by} WHERE application = ? ${equal([by])} ${indexTerm(by)}
       AND opened < ? ORDER BY opened DESC LIMIT 2 OFFSET ?`,
    ).all(query.application, ...valuesOf(query, [by]), start, query.lookAtMax - 1) as { opened: Version }[];
    return rows.length === 2 ? rows[0]?.opened : undefined;
  }

  /** Goes through the stretches, the newest first, in which each filter by itself has a match. */
  #findBySpans(query: RowQuery): FoundRows {
    const filtered = SPANNED.filter((column) => query.filter[column] !== null);
    const found: Found[] = [];
    let before = query.before ?? Number.MAX_SAFE_INTEGER;
    for (let looked = 0; ; looked += SPAN) {
      const span = this.#spanBefore(query, filtered, before);
      if (span === null) {
        return foundOf(found, query.limit, null);
      }
      const from = span * SPAN;
      if (looked >= query.lookAtMax && filtered.length > 1) {
        return foundOf(found, query.limit, before);
      }
      found.push(
        ...(this.#select(
          `SELECT opened, call_id AS callId FROM calls WHERE opened < ? AND opened >= ? AND application = ? ${equal(filtered)}
           ORDER BY opened DESC LIMIT ?`,
        ).all(
          Math.min(before, from + SPAN),
          from,
          query.application,
          ...valuesOf(query, filtered),
          query.limit + 1 - found.length,
        ) as Found[]),
      );
      if (found.length > query.limit) {
        return foundOf(found, query.limit, null);
      }
      before = from;
    }
  }

  /** The newest stretch with versions before `before` that has a match for each filter; null when there is none. */
  #spanBefore(query: RowQuery, filtered: readonly SpannedColumn[], before: Version): number | null {
    const wanted = filtered.length === 0 ? [[ANY, ""]] : filtered.map((column) => [column, query.filter[column] ?? ""]);
    const below = "SELECT max(span) FROM spans WHERE application = ? AND name = ? AND value = ? AND span <= ?";
    let span: number | null = spanOf(before - 1);
    // Each filter's newest stretch up to the others': until all agree.
    for (let agreed = 0, at = 0; agreed < wanted.length; at = (at + 1) % wanted.length) {
      const [name, value] = wanted[at] ?? [];
      const next: number | null | undefined = this.#selectOne(below).get(query.application, name, value, span) as number | null;
      if (next === null || next === undefined) {
        return null;
      }
      agreed = next === span ? agreed + 1 : 1;
      span = next;
    }
    return span;
  }

  #selectOne(sql: string): Database.Statement {
    const known = this.#queries.get(sql);
    const statement = known ?? this.#database.prepare(sql).pluck();
    this.#queries.set(sql, statement);
    return statement;
  }

  #select(sql: string): Database.Statement {
    const known = this.#queries.get(sql);
    const statement = known ?? this.#database.prepare(sql);
    this.#queries.set(sql, statement);
    return statement;
  }

  close(): void {
    this.#database.close();
  }
}

type RemovedRow = { readonly opened: Version; readonly application: string } & Readonly<Record<SpannedColumn, string | null>>;

/** Each entry of `spans` that the rows had, once. */
function spansOf(rows: readonly RemovedRow[]) {
  const spans = new Map<
    string,
    { readonly application: string; readonly name: SpannedColumn | typeof ANY; readonly value: string; readonly span: number }
  >();
  for (const row of rows) {
    const { application } = row;
    const span = spanOf(row.opened);
    for (const name of [ANY, ...SPANNED] as const) {
      const value = name === ANY ? "" : row[name];
      if (value !== null) {
        spans.set(JSON.stringify([span, application, name, value]), { application, name, value, span });
      }
    }
  }
  return spans.values();
}

interface Found {
  readonly opened: Version;
  readonly callId: string;
}

/** `rest`: where to go on when all that was found is given out. */
function foundOf(found: readonly Found[], limit: number, rest: Version | null): FoundRows {
  const calls = found.slice(0, limit);
  const last = calls.at(-1);
  return { calls, next: found.length > limit && last !== undefined ? last.opened : rest };
}

const equal = (columns: readonly FilterColumn[]): string => columns.map((column) => `AND ${column} = ?`).join(" ");
const valuesOf = (query: RowQuery, columns: readonly FilterColumn[]): string[] => columns.map((column) => query.filter[column] ?? "");
/** What SQLite has to be told so that it may use an index on part of the rows. */
const indexTerm = (by: FilterColumn): string => (by === "state" ? `AND ${OPEN}` : `AND ${by} IS NOT NULL`);
