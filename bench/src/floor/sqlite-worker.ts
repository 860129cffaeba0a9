/** The worker of `sqlite-appends.ts`: one transaction, synced, for everything that has arrived. */
import { parentPort, receiveMessageOnPort, workerData } from "node:worker_threads";
import Database from "better-sqlite3";

/** As the product's: 16 MiB of log between checkpoints. */
const CHECKPOINT_PAGES = 4_096;

const port = parentPort;
if (port === null) throw new Error("sqlite-worker.js runs in a worker thread only");

const database = new Database(workerData as string);
database.pragma("journal_mode = WAL");
database.pragma("synchronous = FULL");
database.pragma(`wal_autocheckpoint = ${CHECKPOINT_PAGES}`);
database.exec("CREATE TABLE entries (version INTEGER PRIMARY KEY, call_id TEXT NOT NULL, data TEXT NOT NULL) STRICT");
const begin = database.prepare("BEGIN IMMEDIATE");
const insert = database.prepare<[string, string]>("INSERT INTO entries (call_id, data) VALUES (?, ?)");
const commit = database.prepare("COMMIT");

port.on("message", (first: readonly string[]) => {
  const versions: number[] = [];
  begin.run();
  for (let batch: readonly string[] | undefined = first; batch !== undefined; batch = receiveMessageOnPort(port)?.message) {
    for (let at = 0; at < batch.length; at += 2) {
      versions.push(Number(insert.run(batch[at] as string, batch[at + 1] as string).lastInsertRowid));
    }
  }
  commit.run();
  port.postMessage(versions);
});
port.postMessage([]);
