/** Polls until a condition holds: for what has no signal that a test could wait for. */
export async function eventually<T>(
  what: string,
  look: () => T | undefined | false | Promise<T | undefined | false>,
  withinMs = 10_000,
): Promise<T> {
  const endsAt = performance.now() + withinMs;
  for (;;) {
    const found = await look();
    if (found !== undefined && found !== false) {
      return found;
    }
    if (performance.now() >= endsAt) {
      throw new Error(`${what}: did not come within ${withinMs} ms`);
    }
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
