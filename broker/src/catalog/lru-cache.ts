/** A map that forgets what was used longest ago once it holds `capacity` entries. */
export interface LruCache<T> {
  get(key: string): T | undefined;
  set(key: string, value: T): void;
  clear(): void;
}

export function createLruCache<T>(capacity: number): LruCache<T> {
  const entries = new Map<string, T>();
  return {
    get(key) {
      const value = entries.get(key);
      if (value === undefined) return undefined;
      entries.delete(key);
      entries.set(key, value);
      return value;
    },
    clear: () => entries.clear(),
    set(key, value) {
      entries.delete(key);
      entries.set(key, value);
      if (entries.size <= capacity) return;
      const [oldest] = entries.keys();
      if (oldest !== undefined) entries.delete(oldest);
    },
  };
}
