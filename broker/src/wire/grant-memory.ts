/**
 * What this broker said of grants that no session of it holds any more. A grant may be asked to be sent again, by a driver
 * that got no answer or by one that took the call over: what may have reached a runner is never called unsent, and what was
 * called unsent is never sent (G1).
 */
const GRANTS_MAX = 100_000;

export type GrantFate = "sent" | "refused";

export class GrantMemory {
  private readonly fates = new Map<string, GrantFate>();

  remember(grantId: string, fate: GrantFate): void {
    this.fates.set(grantId, fate);
    if (this.fates.size > GRANTS_MAX) {
      const oldest = this.fates.keys().next().value;
      if (oldest !== undefined) {
        this.fates.delete(oldest);
      }
    }
  }

  fateOf(grantId: string): GrantFate | undefined {
    return this.fates.get(grantId);
  }
}
