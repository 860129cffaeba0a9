/**
 * A page: whether it can be seen and has the focus, when it is left, and the runner id of its tab.
 *
 * Invariants: facts are read from the document each time, events only say when to read them again; what the page holds (locks,
 * connections) is given back at `pagehide` and `freeze`, so that the browser may keep the page, and taken again at `pageshow` and
 * `resume`.
 */
import type { HeldRunnerId, Place, PlaceFacts } from "../core/place.js";
import { Listeners, SharedWatch, waitUntilBack, watchNetwork } from "./browser-place.js";
import { borrowTabId, holdTabId, type TabId } from "./tab-id.js";

/** The place of a page. */
export function createPagePlace(view: Window, document: Document): Place {
  return new PagePlace(view, document);
}

/** What a page says of itself. A page that is being prerendered is hidden. */
export function pageFacts(document: Document): PlaceFacts {
  const isVisible = document.visibilityState === "visible";
  return { visibility: isVisible ? "visible" : "hidden", focused: isVisible && document.hasFocus() };
}

/** Calls back when {@link pageFacts} may differ; the answer takes the listeners off. */
export function watchPageFacts(view: Window, document: Document, listener: () => void): () => void {
  const targets: readonly (readonly [EventTarget, string])[] = [
    [document, "visibilitychange"],
    [view, "focus"],
    [view, "blur"],
    [view, "pageshow"],
  ];
  for (const [target, type] of targets) target.addEventListener(type, listener);
  return () => {
    for (const [target, type] of targets) target.removeEventListener(type, listener);
  };
}

/** Why a page is away. Chromium freezes a page that it puts into its cache, too. */
type Away = "left" | "frozen";

class PagePlace implements Place {
  readonly #ids = new Set<TabId>();
  readonly #watchers = new Listeners();
  readonly #leaving = new Listeners();
  readonly #waking = new Listeners();
  readonly #away = new Set<Away>();
  /** Resolves when the page is back; null while it is there. */
  #back: Promise<void> | null = null;
  #comesBack: () => void = () => {};
  readonly #watch = new SharedWatch(() => this.#listen());

  constructor(
    private readonly view: Window,
    private readonly document: Document,
  ) {}

  facts(): PlaceFacts {
    return pageFacts(this.document);
  }

  watch(listener: () => void): () => void {
    return this.#watch.use(this.#watchers.add(listener));
  }

  async holdRunnerId(binding: string): Promise<HeldRunnerId | null> {
    const id = await holdTabId(binding);
    this.#ids.add(id);
    return {
      get current() {
        return id.current;
      },
      release: () => {
        this.#ids.delete(id);
        id.release();
      },
    };
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
    const offs: (() => void)[] = [];
    const on = (target: EventTarget, type: string, listener: (event: Event) => void) => {
      target.addEventListener(type, listener);
      offs.push(() => target.removeEventListener(type, listener));
    };
    on(this.view, "pagehide", () => this.#leave("left"));
    on(this.document, "freeze", () => this.#leave("frozen"));
    on(this.document, "resume", () => this.#return("frozen"));
    on(this.view, "pageshow", (event) => {
      if ((event as PageTransitionEvent).persisted) this.#return("left");
    });
    offs.push(watchPageFacts(this.view, this.document, () => this.#watchers.tell()));
    const wake = () => {
      if (this.#back === null) this.#waking.tell();
    };
    on(this.document, "visibilitychange", () => this.document.visibilityState === "visible" && wake());
    offs.push(watchNetwork(wake));
    return () => {
      for (const off of offs) off();
    };
  }

  #leave(why: Away): void {
    this.#away.add(why);
    if (this.#back !== null) return;
    this.#back = new Promise((resolve) => {
      this.#comesBack = resolve;
    });
    this.#leaving.tell();
    for (const id of this.#ids) id.pause();
  }

  #return(why: Away): void {
    this.#away.delete(why);
    if (this.#away.size > 0 || this.#back === null) return;
    const comesBack = this.#comesBack;
    void Promise.all([...this.#ids].map((id) => id.resume())).then(() => {
      if (this.#away.size > 0) {
        // Left again meanwhile, with ids that were not back yet.
        for (const id of this.#ids) id.pause();
        return;
      }
      if (this.#comesBack !== comesBack) return;
      this.#back = null;
      comesBack();
      this.#waking.tell();
    });
  }
}
