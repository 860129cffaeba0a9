/** Fills a ledger with settled calls through the ledger's own port: copies of a call that a broker carried out. */
import { randomBytes } from "node:crypto";
import { connectNats, type Ledger, openJetStreamLedger, openSqliteLedger } from "@toolrunner/broker/internal";
import type { LedgerPlace } from "../processes/roles.js";
import { serveRole } from "../processes/serve-role.js";
import type { LedgerFillRole } from "./roles.js";
import { SettledCopy, type TemplateEntry } from "./settled-copy.js";

const IN_FLIGHT = 512;
/** Of the template: enough for the two of a call on the fast path, whatever lies beside them. */
const LOOKED_AT = 64;

const log = { debug() {}, info() {}, warn() {}, error() {}, child: () => log };
const idOf = (prefix: string): string => `${prefix}_${randomBytes(16).toString("hex").slice(0, 26)}`;

async function openLedger(place: LedgerPlace): Promise<{ readonly ledger: Ledger; readonly close: () => Promise<void> }> {
  if (place.kind === "sqlite") {
    const ledger = await openSqliteLedger({ dataDir: place.dataDir, log });
    return { ledger, close: () => ledger.close() };
  }
  const connection = await connectNats({ url: place.url, name: "bench-fill", log });
  const incarnation = idOf("broker");
  const clock = {
    now: () => Date.now(),
    monotonic: () => performance.now(),
    schedule(delayMs: number, task: () => void) {
      const timer = setTimeout(task, delayMs);
      return { cancel: () => clearTimeout(timer) };
    },
  };
  const ledger = await openJetStreamLedger({ connection, replicas: 1, incarnation, clock, log });
  return {
    ledger,
    async close() {
      await ledger.retire(incarnation);
      await ledger.close();
      await connection.close();
    },
  };
}

/** The entries of the first call that went through on the fast path. */
async function templateOf(ledger: Ledger): Promise<{ readonly callId: string; readonly entries: readonly TemplateEntry[] }> {
  const looked = new AbortController();
  const first = new Map<string, number>();
  let count = 0;
  for await (const { callId } of ledger.tail(1, looked.signal)) {
    first.set(callId, (first.get(callId) ?? 0) + 1);
    count += 1;
    if (first.get(callId) === 2) {
      looked.abort();
      const entries: TemplateEntry[] = [];
      for await (const entry of ledger.read(callId)) entries.push(entry);
      if (entries.length === 2) return { callId, entries };
    }
    if (count === LOOKED_AT) break;
  }
  throw new Error("the ledger holds no call that took two entries");
}

serveRole<LedgerFillRole>({
  async copy({ place, calls }) {
    const begun = performance.now();
    const { ledger, close } = await openLedger(place);
    try {
      const { callId: templateId, entries } = await templateOf(ledger);
      let left = calls;
      const chain = async (): Promise<void> => {
        while (left > 0) {
          left -= 1;
          const callId = idOf("call");
          const copy = new SettledCopy(
            entries,
            templateId,
            callId,
            entries.map(() => idOf("ent")),
          );
          let expected = 0;
          for (const index of entries.keys()) {
            const mark = index === 0 ? "opens" : "settles";
            const outcome = await ledger.append(callId, expected, { ...copy.entry(index), mark });
            if (outcome.kind !== "appended") throw new Error(`${callId} could not be stored: ${outcome.kind}`);
            copy.stored(index, outcome.version);
            expected = outcome.version;
          }
        }
      };
      await Promise.all(Array.from({ length: Math.min(IN_FLIGHT, calls) }, chain));
    } finally {
      await close();
    }
    return performance.now() - begun;
  },
});
