/**
 * A worker: it cannot be seen. What the page that made it says of itself stands for it, once that page forwards it.
 *
 * Invariant: only messages of the one form are taken, and only while a runner watches; all others are the product's own.
 */
import type { HeldRunnerId, Place, PlaceFacts } from "../core/place.js";
import { Listeners, SharedWatch, waitUntilBack, watchNetwork } from "./browser-place.js";
import { createPagePlace, pageFacts } from "./page-place.js";
import { borrowTabId } from "./tab-id.js";

const WANTED = { toolrunner: "page_state_wanted" } as const;

/** What a page posts to its worker. */
interface PageStateMessage extends PlaceFacts {
  readonly toolrunner: "page_state";
  /** It is left or frozen. */
  readonly away: boolean;
}

/** The part of a `Worker`, or of a `MessagePort`, that {@link forwardPageState} uses. */
export interface PageStateTarget {
  postMessage(message: unknown): void;
  addEventListener(type: "message", listener: (event: { readonly data: unknown }) => void): void;
  removeEventListener(type: "message", listener: (event: { readonly data: unknown }) => void): void;
}

/**
 * Tells a dedicated worker's runner whether this page can be seen and has the focus, and when it is left, now and with every change;
 * without it the worker's visibility is `unknown`, and it hears of its page's end by its own. Call it in the page, right after
 * `new Worker(…)`. The answer ends it.
 */
export function forwardPageState(worker: PageStateTarget): () => void {
  let away = false;
  const tell = () => worker.postMessage({ toolrunner: "page_state", ...pageFacts(document), away } satisfies PageStateMessage);
  const asked = ({ data }: { readonly data: unknown }) => {
    if (isRecord(data) && data["toolrunner"] === WANTED.toolrunner) tell();
  };
  worker.addEventListener("message", asked);
  const place = createPagePlace(window, document);
  const offs = [
    place.watch(tell),
    place.onLeave(() => {
      away = true;
      tell();
    }),
    place.onWake(() => {
      away = false;
      tell();
    }),
  ];
  tell();
  return () => {
    for (const off of offs) off();
    worker.removeEventListener("message", asked);
  };
}

/** The place of a worker, and of anything else without a document. */
export function createWorkerPlace(): Place {
  return new WorkerPlace();
}

class WorkerPlace implements Place {
  readonly #watchers = new Listeners();
  readonly #leaving = new Listeners();
  readonly #waking = new Listeners();
  #facts: PlaceFacts = { visibility: "unknown", focused: false };
  #back: Promise<void> | null = null;
  #comesBack: () => void = () => {};
  readonly #watch = new SharedWatch(() => this.#listen());

  facts(): PlaceFacts {
    return this.#facts;
  }

  watch(listener: () => void): () => void {
    return this.#watch.use(this.#watchers.add(listener));
  }

  holdRunnerId(): Promise<null> {
    return Promise.resolve(null);
  }

  async borrowRunnerId(id: string): Promise<HeldRunnerId | null> {
    const release = await borrowTabId(id);
    return release === null ? null : { current: id, release };
  }

  async present(signal: AbortSignal): Promise<void> {
    await waitUntilBack(() => this.#back, signal);
  }

  onLeave(listener: () => void): () => void {
    return this.#watch.use(this.#leaving.add(listener));
  }

  onWake(listener: () => void): () => void {
    return this.#watch.use(this.#waking.add(listener));
  }

  #listen(): () => void {
    const off = watchNetwork(() => this.#waking.tell());
    if (!isDedicatedWorker()) return off;
    const take = ({ data }: MessageEvent<unknown>) => this.#take(data);
    addEventListener("message", take);
    // The page may have spoken before this worker listened.
    postMessage(WANTED);
    return () => {
      off();
      removeEventListener("message", take);
    };
  }

  #take(data: unknown): void {
    const told = readPageState(data);
    if (told === null) return;
    const { away, ...facts } = told;
    const isShown = facts.visibility === "visible" && this.#facts.visibility !== "visible";
    this.#facts = facts;
    this.#watchers.tell();
    if (away && this.#back === null) {
      this.#back = new Promise((resolve) => {
        this.#comesBack = resolve;
      });
      this.#leaving.tell();
    } else if (!away && this.#back !== null) {
      this.#back = null;
      this.#comesBack();
      this.#waking.tell();
    } else if (!away && isShown) this.#waking.tell();
  }
}

/** Only this kind has one page that speaks for it. */
function isDedicatedWorker(): boolean {
  const scope: unknown = Reflect.get(globalThis, "DedicatedWorkerGlobalScope");
  return typeof scope === "function" && globalThis instanceof scope;
}

function readPageState(data: unknown): (PlaceFacts & { readonly away: boolean }) | null {
  if (!isRecord(data) || data["toolrunner"] !== "page_state") return null;
  const { visibility, focused, away } = data;
  if ((visibility !== "visible" && visibility !== "hidden") || typeof focused !== "boolean") return null;
  return { visibility, focused, away: away === true };
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null;
}
