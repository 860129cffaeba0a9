/**
 * A worker: it cannot be seen. What the page that made it says of itself stands for it, once that page forwards it.
 *
 * Invariant: only messages of the one form are taken, and only while a runner watches; all others are the product's own.
 */
import type { PlaceFacts } from "../core/place.js";
import type { BrowserPlace } from "./browser-place.js";
import { pageFacts, watchPageFacts } from "./page-place.js";

const WANTED = { toolrunner: "page_state_wanted" } as const;

/** What a page posts to its worker. */
interface PageStateMessage extends PlaceFacts {
  readonly toolrunner: "page_state";
}

/** The part of a `Worker`, or of a `MessagePort`, that {@link forwardPageState} uses. */
export interface PageStateTarget {
  postMessage(message: unknown): void;
  addEventListener(type: "message", listener: (event: { readonly data: unknown }) => void): void;
  removeEventListener(type: "message", listener: (event: { readonly data: unknown }) => void): void;
}

/**
 * Tells a dedicated worker's runner whether this page can be seen and has the focus, now and with every change; without it the
 * worker's visibility is `unknown`. Call it in the page, right after `new Worker(…)`. The answer ends it.
 */
export function forwardPageState(worker: PageStateTarget): () => void {
  const tell = () => worker.postMessage({ toolrunner: "page_state", ...pageFacts(document) } satisfies PageStateMessage);
  const asked = ({ data }: { readonly data: unknown }) => {
    if (isRecord(data) && data["toolrunner"] === WANTED.toolrunner) tell();
  };
  worker.addEventListener("message", asked);
  const unwatch = watchPageFacts(window, document, tell);
  tell();
  return () => {
    unwatch();
    worker.removeEventListener("message", asked);
  };
}

/** The place of a worker, and of anything else without a document. */
export function createWorkerPlace(): BrowserPlace {
  let facts: PlaceFacts = { visibility: "unknown", focused: false };
  const watchers = new Set<() => void>();
  const take = ({ data }: MessageEvent<unknown>) => {
    const told = readPageState(data);
    if (told === null) return;
    facts = told;
    for (const watcher of [...watchers]) watcher();
  };
  return {
    facts: () => facts,
    watch(listener) {
      const own = () => listener();
      if (watchers.size === 0 && isDedicatedWorker()) {
        addEventListener("message", take);
        // The page may have spoken before this worker listened.
        postMessage(WANTED);
      }
      watchers.add(own);
      return () => {
        if (watchers.delete(own) && watchers.size === 0 && isDedicatedWorker()) removeEventListener("message", take);
      };
    },
    holdRunnerId: async () => null,
    present: async () => {},
    onLeave: () => () => {},
  };
}

/** Only this kind has one page that speaks for it. */
function isDedicatedWorker(): boolean {
  const scope: unknown = Reflect.get(globalThis, "DedicatedWorkerGlobalScope");
  return typeof scope === "function" && globalThis instanceof scope;
}

function readPageState(data: unknown): PlaceFacts | null {
  if (!isRecord(data) || data["toolrunner"] !== "page_state") return null;
  const { visibility, focused } = data;
  if ((visibility !== "visible" && visibility !== "hidden") || typeof focused !== "boolean") return null;
  return { visibility, focused };
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null;
}
