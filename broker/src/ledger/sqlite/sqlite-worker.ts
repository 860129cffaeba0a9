/**
 * The worker thread of the SQLite ledger: all work on the database, in groups.
 *
 * Invariants (L8):
 * - A group is everything that arrived since the last transaction; it is answered after its COMMIT, never before.
 * - When a transaction fails, at BEGIN, in between or at COMMIT, its outcome is unknown or its store is not usable:
 *   the worker says so once and answers nothing any more.
 */
import { type MessagePort, parentPort, receiveMessageOnPort, workerData } from "node:worker_threads";
import { LedgerError } from "../../domain/ports/ledger.js";
import { type DataFolderLock, lockDataFolder } from "./data-folder-lock.js";
import type { Answer, Batch, Request, WorkerMessage, WorkerSetup } from "./sqlite-protocol.js";
import { openSqliteStore, type SqliteStore } from "./sqlite-store.js";

function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function refusal(id: number, error: unknown): Answer {
  if (error instanceof LedgerError) return { id, kind: "refused", code: error.code, message: error.message };
  throw error;
}

/** Requests that are done inside a group's transaction. */
type WritingOp = "put_blob" | "remove" | "remove_blob" | "join_lane" | "leave_lane";
type Writing = Extract<Request, { op: WritingOp }>;

const WRITING: ReadonlySet<Request["op"]> = new Set<WritingOp>(["put_blob", "remove", "remove_blob", "join_lane", "leave_lane"]);

function isWriting(request: Request): request is Writing {
  return WRITING.has(request.op);
}

function written(store: SqliteStore, request: Writing): Answer {
  const { id } = request;
  switch (request.op) {
    case "put_blob": {
      const { name, text } = request;
      return store.putBlob(name, text)
        ? { id, kind: "done" }
        : { id, kind: "refused", code: "blob_name_taken", message: `blob ${name} is stored already with another text` };
    }
    case "remove":
      store.remove(request.callId, request.versions);
      return { id, kind: "done" };
    case "remove_blob":
      return { id, kind: "removed", removed: store.removeBlob(request.name, request.place) };
    case "join_lane":
      return { id, kind: "lane", member: store.lanes.join(request.lane, request.callId) };
    case "leave_lane":
      store.lanes.leave(request.lane, request);
      return { id, kind: "done" };
  }
}

function answerTo(store: SqliteStore, request: Exclude<Request, { op: WritingOp | "close" }>): Answer {
  const { id } = request;
  switch (request.op) {
    case "first_in_lane":
      return { id, kind: "lane", member: store.lanes.first(request.lane) };
    case "read":
      return { id, kind: "entries", ...store.read(request.callId, request.from) };
    case "page":
      return { id, kind: "tailed", ...store.page(request.from) };
    case "open_calls":
      return { id, kind: "call_ids", ...store.openCallsAfter(request.after) };
    case "get_blob":
      try {
        return { id, kind: "text", text: store.getBlob(request.name) };
      } catch (error) {
        return refusal(id, error);
      }
    case "places":
      return { id, kind: "places", ...store.places(request.from) };
    case "blob_places":
      return { id, kind: "blob_places", ...store.blobPlaces(request.from) };
    case "blob_place":
      return { id, kind: "place", place: store.blobPlace(request.name) };
    case "check":
      store.latest();
      return { id, kind: "done" };
  }
}

/** Does one group. Returns the id of a `close` request in it. */
function runGroup(store: SqliteStore, group: readonly Batch[], send: (message: WorkerMessage) => void): number | undefined {
  const appends: number[] = [];
  const answers: Answer[] = [];
  let closeId: number | undefined;
  const writing = group.flatMap((batch) => batch.requests.filter(isWriting));
  if (writing.length > 0 || group.some((batch) => batch.appends.length > 0)) {
    store.begin();
    for (const batch of group) store.appendAll(batch.appends, appends);
    for (const request of writing) answers.push(written(store, request));
    store.commit();
  }
  for (const batch of group) {
    for (const request of batch.requests) {
      if (request.op === "close") closeId = request.id;
      else if (!isWriting(request)) answers.push(answerTo(store, request));
    }
  }
  send({ kind: "answers", appends, answers, latest: store.latest() });
  return closeId;
}

function serve(port: MessagePort, store: SqliteStore, lock: DataFolderLock): void {
  const send = (message: WorkerMessage): void => port.postMessage(message);
  let stopped = false;
  port.on("message", (first: Batch) => {
    if (stopped) return;
    const group = [first];
    for (let next = receiveMessageOnPort(port); next !== undefined; next = receiveMessageOnPort(port)) group.push(next.message as Batch);
    try {
      const closeId = runGroup(store, group, send);
      if (closeId === undefined) return;
      stopped = true;
      store.close();
      lock.release();
      send({ kind: "answers", appends: [], answers: [{ id: closeId, kind: "done" }], latest: 0 });
      port.close();
    } catch (error) {
      stopped = true;
      send({ kind: "fatal", message: textOf(error) });
    }
  });
}

function start(port: MessagePort, setup: WorkerSetup): void {
  let lock: DataFolderLock | undefined;
  try {
    lock = lockDataFolder(setup.dataDir);
    const store = openSqliteStore(setup.dataDir, setup.busyTimeoutMs);
    serve(port, store, lock);
    port.postMessage({ kind: "ready", latest: store.latest() } satisfies WorkerMessage);
  } catch (error) {
    lock?.release();
    const code = error instanceof LedgerError ? error.code : undefined;
    port.postMessage({ kind: "not_ready", code, message: textOf(error) } satisfies WorkerMessage);
    port.close();
  }
}

if (parentPort === null) throw new Error("sqlite-worker.js runs in a worker thread only");
start(parentPort, workerData as WorkerSetup);
