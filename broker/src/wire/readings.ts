/** What the wire holds, for who scrapes: nothing of it is kept up to date while nobody looks. */
import { isSettledState } from "../domain/call/call-state.js";
import type { Version } from "../domain/ports/ledger.js";
import type { OpenCallReading, Readings, SessionReading } from "../domain/ports/meter.js";
import type { DriverTable } from "./driver-table.js";
import type { LedgerWatch } from "./ledger-watch.js";
import type { Membership } from "./membership.js";
import { slotsInUse } from "./session.js";
import type { SessionRegistry } from "./session-registry.js";

/** Calls and sessions are read when they are iterated. */
export function readingsOf(of: {
  readonly table: DriverTable;
  readonly registry: SessionRegistry;
  readonly membership: Membership;
  readonly ledgerWatch: LedgerWatch;
  readonly newestVersion: Version;
}): Readings {
  const { table, registry, membership, ledgerWatch, newestVersion } = of;
  return {
    openCalls: { [Symbol.iterator]: () => openCalls(table) },
    sessions: { [Symbol.iterator]: () => sessions(registry) },
    liveBrokers: membership.live().length,
    ledgerSilentMs: ledgerWatch.silentMs,
    ledgerAway: ledgerWatch.away,
    newestVersion,
  };
}

function* openCalls(table: DriverTable): IterableIterator<OpenCallReading> {
  for (const driver of table) {
    if (!driver.drives) {
      continue;
    }
    const state = driver.known;
    if (!isSettledState(state)) {
      const { application, toolset, tool, createdAtMs } = state.record.request;
      yield { state: state.kind, application, toolset, tool, createdAtMs };
    }
  }
}

function* sessions(registry: SessionRegistry): IterableIterator<SessionReading> {
  for (const session of registry.all) {
    const { channel, bindingKind, slots } = session;
    yield { transport: channel.transport, bindingKind, slots, slotsInUse: slotsInUse(session) };
  }
}
