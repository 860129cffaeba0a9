/** Appends to SQLite in a worker thread: all that arrive in one turn travel together, all that wait share one transaction. */
import { once } from "node:events";
import { join } from "node:path";
import { Worker } from "node:worker_threads";
import type { Appends } from "./appends.js";

/** Name of the database in the data folder. */
export const FLOOR_DATABASE = "floor.db";

export async function openSqliteAppends(dataDir: string): Promise<Appends> {
  const worker = new Worker(new URL("./sqlite-worker.js", import.meta.url), { workerData: join(dataDir, FLOOR_DATABASE) });
  await once(worker, "message");
  let batch: string[] = [];
  // Answered in the order of sending.
  let pending: ((version: number) => void)[] = [];
  worker.on("message", (versions: readonly number[]) => {
    const answered = pending.slice(0, versions.length);
    pending = pending.slice(versions.length);
    answered.forEach((resolve, index) => {
      resolve(versions[index] ?? 0);
    });
  });
  return {
    append(callId, _expected, data) {
      return new Promise((resolve) => {
        pending.push(resolve);
        batch.push(callId, data.toString("latin1"));
        if (batch.length > 2) return;
        setImmediate(() => {
          worker.postMessage(batch);
          batch = [];
        });
      });
    },
    async close() {
      await worker.terminate();
    },
  };
}
