/**
 * A page: whether it can be seen and has the focus, when it is left, and the runner id of its tab.
 *
 * Invariants: facts are read from the document each time, events only say when to read them again; what the page holds (locks,
 * connections) is given back at `pagehide`, so that the browser may keep the page, and taken again at `pageshow`.
 */
import { ConnectError } from "../core/errors.js";
import type { HeldRunnerId, PlaceFacts } from "../core/place.js";
import type { BrowserPlace } from "./browser-place.js";
import { holdTabId, type TabId } from "./tab-id.js";

/** The place of a page. */
export function createPagePlace(view: Window, document: Document): BrowserPlace {
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

class PagePlace implements BrowserPlace {
  readonly #ids = new Set<TabId>();
  readonly #watchers = new Set<() => void>();
  readonly #leaving = new Set<() => void>();
  /** Resolves when the page is back; null while it is there. */
  #back: Promise<void> | null = null;
  #comesBack: () => void = () => {};
  #unwatch: () => void = () => {};

  constructor(
    private readonly view: Window,
    private readonly document: Document,
  ) {}

  facts(): PlaceFacts {
    return pageFacts(this.document);
  }

  watch(listener: () => void): () => void {
    if (this.#watchers.size === 0) this.#listen();
    // Given twice, it is two watchers.
    const own = () => listener();
    this.#watchers.add(own);
    return () => {
      if (this.#watchers.delete(own) && this.#watchers.size === 0) this.#unwatch();
    };
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

  async present(signal: AbortSignal): Promise<void> {
    if (this.#back === null) return;
    const back = this.#back;
    await new Promise<void>((resolve, reject) => {
      const giveUp = () => reject(new ConnectError("the page was left", null));
      if (signal.aborted) giveUp();
      signal.addEventListener("abort", giveUp, { once: true });
      void back.then(resolve);
    });
  }

  onLeave(listener: () => void): () => void {
    this.#leaving.add(listener);
    return () => void this.#leaving.delete(listener);
  }

  #listen(): void {
    const hidden = () => this.#left();
    const shown = (event: PageTransitionEvent) => void (event.persisted && this.#returned());
    this.view.addEventListener("pagehide", hidden);
    this.view.addEventListener("pageshow", shown);
    const off = watchPageFacts(this.view, this.document, () => {
      for (const watcher of [...this.#watchers]) watcher();
    });
    this.#unwatch = () => {
      off();
      this.view.removeEventListener("pagehide", hidden);
      this.view.removeEventListener("pageshow", shown);
    };
  }

  #left(): void {
    if (this.#back !== null) return;
    this.#back = new Promise((resolve) => {
      this.#comesBack = resolve;
    });
    for (const listener of [...this.#leaving]) listener();
    for (const id of this.#ids) id.pause();
  }

  async #returned(): Promise<void> {
    await Promise.all([...this.#ids].map((id) => id.resume()));
    this.#back = null;
    this.#comesBack();
  }
}
