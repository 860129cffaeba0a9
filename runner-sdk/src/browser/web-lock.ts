/**
 * Web Locks, as something that one holds and gives back.
 *
 * Invariant: a lock that was taken is given back by `release()`, by the end of the page, or by whoever steals it; only the last of
 * these is told.
 */

/** A lock that this page or worker holds. */
export interface HeldLock {
  /** Gives it back. Idempotent. */
  release(): void;
  /** Calls back when somebody else took it by force. */
  onStolen(listener: () => void): void;
}

/** The locks of this origin; null where there are none, as on an insecure origin. */
export function webLocks(): LockManager | null {
  return (navigator.locks as LockManager | undefined) ?? null;
}

/**
 * Takes a lock within `waitMs`, at once or not at all when that is 0; or, with a `signal`, whenever it is free until that aborts.
 * Resolves with null when it was not to be had. Rejects where the browser lets this page have no locks.
 */
export function takeLock(
  locks: LockManager,
  name: string,
  wait: { readonly waitMs: number } | { readonly signal: AbortSignal },
): Promise<HeldLock | null> {
  return new Promise((resolve, reject) => {
    let release: () => void = () => {};
    let stolen: () => void = () => {};
    let isHeld = false;
    let isReleased = false;
    const hold = (lock: Lock | null): Promise<void> | undefined => {
      if (lock === null) {
        resolve(null);
        return undefined;
      }
      isHeld = true;
      return new Promise((giveBack) => {
        release = () => {
          isReleased = true;
          giveBack();
        };
        resolve({
          release: () => release(),
          onStolen: (listener) => {
            stolen = listener;
          },
        });
      });
    };
    const options: LockOptions =
      "signal" in wait ? { signal: wait.signal } : wait.waitMs === 0 ? { ifAvailable: true } : { signal: AbortSignal.timeout(wait.waitMs) };
    locks.request(name, options, hold).catch((error: unknown) => {
      if (isReleased) return;
      if (isHeld) stolen();
      else if (error instanceof DOMException && (error.name === "TimeoutError" || error.name === "AbortError")) resolve(null);
      else reject(error);
    });
  });
}
