import { afterAll, beforeAll, describe, it } from "vitest";
import { type Cell, type LedgerKind, startCell, TRANSPORTS } from "./cell.js";
import { SCENARIOS } from "./scenarios/index.js";

/** All scenarios over every transport, on one kind of ledger: a test file for each, so that they run side by side. */
export function runMatrix(ledger: LedgerKind): void {
  for (const transport of TRANSPORTS) {
    describe(`over ${transport} on ${ledger}`, () => {
      let cell: Cell;
      beforeAll(async () => {
        cell = await startCell(transport, ledger);
      }, 30_000);
      afterAll(() => cell.stop());
      for (const { shows, name, skip, run } of SCENARIOS) {
        const title = `${shows.join(" ")}: ${name}`;
        const reason = skip?.(transport, ledger);
        if (reason === undefined) {
          it.concurrent(title, () => run(cell), 60_000);
        } else {
          it.skip(`${title} [${reason}]`);
        }
      }
    });
  }
}
