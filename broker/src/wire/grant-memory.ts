/**
 * What this broker said of grants that no session of it holds any more. A grant may be asked to be sent again, by a driver
 * that got no answer or by one that took the call over: what may have reached a runner is never called unsent, and what was
 * called unsent is never sent (G1).
 */
import { RecentMap } from "../domain/recent-map.js";

/** Grants that are remembered at least. */
const GRANTS_KEPT = 50_000;

export type GrantFate = "sent" | "refused";

export class GrantMemory {
  private readonly fates = new RecentMap<string, GrantFate>(GRANTS_KEPT);

  remember(grantId: string, fate: GrantFate): void {
    this.fates.set(grantId, fate);
  }

  fateOf(grantId: string): GrantFate | undefined {
    return this.fates.get(grantId);
  }
}
