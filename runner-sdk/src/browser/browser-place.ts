/** What all places of a browser have in common. */
import { ConnectError } from "../core/errors.js";

/** Resolves when nothing is waited for any more: a place may be gone again by the time that it was said to be back. @throws ConnectError */
export async function waitUntilBack(back: () => Promise<void> | null, signal: AbortSignal): Promise<void> {
  for (let waited = back(); waited !== null; waited = back()) {
    const isBack = waited;
    await new Promise<void>((resolve, reject) => {
      const giveUp = () => reject(new ConnectError("the page was left", null));
      if (signal.aborted) return giveUp();
      signal.addEventListener("abort", giveUp, { once: true });
      void isBack.then(() => {
        signal.removeEventListener("abort", giveUp);
        resolve();
      });
    });
  }
}

/** Calls back when this page or worker may reach the network again, or not any more; the answer takes the listeners off. */
export function watchNetwork(listener: () => void): () => void {
  addEventListener("online", listener);
  addEventListener("offline", listener);
  return () => {
    removeEventListener("online", listener);
    removeEventListener("offline", listener);
  };
}

/** Listeners that come and go. One that is given twice is two. */
export class Listeners {
  readonly #listeners = new Set<() => void>();

  add(listener: () => void): () => void {
    const own = () => listener();
    this.#listeners.add(own);
    return () => void this.#listeners.delete(own);
  }

  get size(): number {
    return this.#listeners.size;
  }

  tell(): void {
    for (const listener of [...this.#listeners]) listener();
  }
}

/** Listens to the platform as long as anybody listens here. */
export class SharedWatch {
  #users = 0;
  #unwatch: () => void = () => {};

  /** @param watch begins to listen; what it returns ends that. */
  constructor(private readonly watch: () => () => void) {}

  /** One more listens, who is taken off by `off`. The answer ends it, once. */
  use(off: () => void): () => void {
    if (this.#users === 0) this.#unwatch = this.watch();
    this.#users += 1;
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      off();
      this.#users -= 1;
      if (this.#users === 0) this.#unwatch();
    };
  }
}
