/**
 * A broker's way to the shared ledger. Entries take time to get there and to be acknowledged, now and then a long time; an
 * acknowledgement may get lost, and then the ledger repeats the append unchanged and learns that it is a duplicate (L2).
 */
import type { Ledger, StoredEntry } from "../../domain/ports/ledger.js";
import { createMemoryLedger, type MemoryLedgerStore } from "../../ledger/memory/memory-ledger.js";
import type { SimProcess } from "./world.test.kit.js";

export interface LedgerFaults {
  /** Part of the appends that stay pending for long, before or after they took effect. */
  slow: number;
  /** How long, at most. */
  slowMs: number;
  /** Part of the acknowledgements that get lost. */
  lostAcks: number;
}

export interface SimLedger extends Ledger {
  /** While it is away nothing gets there and nothing comes back. */
  away: boolean;
}

export function createSimLedger(process: SimProcess, store: MemoryLedgerStore, faults: LedgerFaults): SimLedger {
  const { world } = process;
  const { random } = process;
  const inner = createMemoryLedger({ store, turn: () => Promise.resolve() });
  let away = false;

  async function reachable(): Promise<void> {
    while (away) {
      await world.sleep(random.between(5, 30));
    }
  }

  /** On the way to the ledger: nothing that happens to the broker's process stops it. */
  async function there(slow = 0): Promise<void> {
    await reachable();
    await world.sleep(random.chance(slow) ? random.between(0, faults.slowMs) : random.between(0.1, 3));
    await reachable();
  }

  /** On the way back to the broker's process. */
  async function back(slow = 0): Promise<void> {
    await there(slow);
    await process.turn(0);
  }

  async function snapshot<T>(read: () => AsyncIterable<T>): Promise<readonly T[]> {
    await there();
    const found: T[] = [];
    for await (const item of read()) {
      found.push(item);
    }
    await back();
    return found;
  }

  return {
    description: inner.description,
    get away() {
      return away;
    },
    set away(value: boolean) {
      away = value;
    },
    async append(callId, expected, entry) {
      await there(faults.slow);
      let outcome = await inner.append(callId, expected, entry);
      if (random.chance(faults.lostAcks)) {
        await world.sleep(random.between(1, faults.slowMs));
        outcome = await inner.append(callId, expected, entry);
      }
      await back(faults.slow);
      return outcome;
    },
    async *read(callId, from): AsyncIterable<StoredEntry> {
      yield* await snapshot(() => inner.read(callId, from));
    },
    tail: (from, signal) => inner.tail(from, signal),
    latest: () => inner.latest(),
    async *openCalls() {
      yield* await snapshot(() => inner.openCalls());
    },
    async check() {
      await there();
      await back();
    },
    async retire(incarnation) {
      await there();
      await inner.retire(incarnation);
      await back();
    },
    async *places(from, signal) {
      yield* await snapshot(() => inner.places(from, signal));
    },
    async remove(callId, versions) {
      // One by one: a broker may die between any two.
      for (const version of versions) {
        await there();
        await inner.remove(callId, [version]);
        await back();
      }
    },
    blobs: {
      async *places(from, signal) {
        yield* await snapshot(() => inner.blobs.places(from, signal));
      },
      async placeOf(name) {
        await there();
        const place = await inner.blobs.placeOf(name);
        await back();
        return place;
      },
      async remove(blob) {
        await there();
        const removed = await inner.blobs.remove(blob);
        await back();
        return removed;
      },
      async put(name, text) {
        await there();
        await inner.blobs.put(name, text);
        await back();
      },
      async get(name) {
        await there();
        const text = await inner.blobs.get(name);
        await back();
        return text;
      },
    },
    lanes: {
      async join(lane, callId) {
        await there(faults.slow);
        let place = await inner.lanes.join(lane, callId);
        if (random.chance(faults.lostAcks)) {
          await world.sleep(random.between(1, faults.slowMs));
          place = await inner.lanes.join(lane, callId);
        }
        await back(faults.slow);
        return place;
      },
      async first(lane) {
        await there();
        const head = await inner.lanes.first(lane);
        await back();
        return head;
      },
      async leave(lane, member) {
        await there(faults.slow);
        await inner.lanes.leave(lane, member);
        await back(faults.slow);
      },
    },
    close: () => inner.close(),
  };
}
