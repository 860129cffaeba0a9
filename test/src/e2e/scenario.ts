/** Scenarios are written once and run in every cell that they apply to. */
import type { Cell, LedgerKind, TransportKind } from "./cell.js";

export interface Scenario {
  /** Ids of `requirements.ts` that it shows. */
  readonly shows: readonly string[];
  readonly name: string;
  /** Why it says nothing new in this cell; undefined: it runs. */
  readonly skip?: (transport: TransportKind, ledger: LedgerKind) => string | undefined;
  readonly run: (cell: Cell) => Promise<void>;
}

export function scenario(shows: readonly string[], name: string, run: Scenario["run"], skip?: Scenario["skip"]): Scenario {
  return { shows, name, run, ...(skip === undefined ? {} : { skip }) };
}

/** For what no runner takes part in. */
export function oncePerLedger(transport: TransportKind): string | undefined {
  return transport === "memory" ? undefined : "no runner takes part: the memory column shows it for this ledger";
}

/** For what the runner does before it connects. */
export function onlyOnce(transport: TransportKind, ledger: LedgerKind): string | undefined {
  return transport === "memory" && ledger === "memory" ? undefined : "nothing is sent or stored: one cell shows it";
}
