/** Whether the broker drains, and who is told when it begins to. */
export class Drain {
  private readonly listeners = new Set<() => void>();
  private hasBegun = false;

  get begun(): boolean {
    return this.hasBegun;
  }

  /** Idempotent. */
  begin(): void {
    this.hasBegun = true;
    const told = [...this.listeners];
    this.listeners.clear();
    for (const listener of told) {
      listener();
    }
  }

  /** Calls `listener` once, when the drain begins; at once when it has. Returns the way to take it back. */
  onBegin(listener: () => void): () => void {
    if (this.hasBegun) {
      listener();
    } else {
      this.listeners.add(listener);
    }
    return () => this.listeners.delete(listener);
  }
}
