/**
 * Things in the order in which they came, of which any can be taken out.
 *
 * A `Map` keeps such an order too, but looking for its first entry walks over all that were deleted before it: with ten thousand
 * entries that come and go, dozens of microseconds each time.
 */
export class FirstInFirstOut<T> {
  #items: (T | undefined)[] = [];
  /** Index of the oldest that may still be there. */
  #head = 0;
  /** Number of the item at index 0. */
  #base = 0;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** The oldest one; undefined when there is none. */
  get oldest(): T | undefined {
    while (this.#head < this.#items.length && this.#items[this.#head] === undefined) this.#head += 1;
    return this.#items[this.#head];
  }

  /** The answer is the number by which it can be removed. */
  add(item: T): number {
    this.#size += 1;
    return this.#base + this.#items.push(item) - 1;
  }

  /** Takes out what has this number; what is out already stays out. */
  remove(number: number): void {
    const index = number - this.#base;
    if (this.#items[index] === undefined) return;
    this.#items[index] = undefined;
    this.#size -= 1;
    if (index === this.#head) this.#compact();
  }

  /** Gives the room of what is out back, when it is at least half of all. */
  #compact(): void {
    while (this.#head < this.#items.length && this.#items[this.#head] === undefined) this.#head += 1;
    if (this.#head * 2 < this.#items.length) return;
    this.#items = this.#items.slice(this.#head);
    this.#base += this.#head;
    this.#head = 0;
  }
}
