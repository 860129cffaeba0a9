/**
 * A process for tests that kill it: opens the SQLite ledger in the folder named first and appends to many calls at once for ever.
 * Each acknowledgement is a line on standard output, which must be a file: call id, entry id, version, mark. It ends by a signal, or when the ledger fails.
 */
import { randomUUID } from "node:crypto";
import { writeSync } from "node:fs";
import { type Log, openSqliteLedger } from "@toolrunner/broker/internal";

const WRITERS = 40;
const PADDING = "x".repeat(400);
const silent: Log = { debug: () => undefined, info: () => undefined, warn: () => undefined, error: () => undefined };

const dataDir = process.argv[2] ?? "";
const ledger = await openSqliteLedger({ dataDir, log: silent });
writeSync(1, "ready\n");

async function write(): Promise<never> {
  for (;;) {
    const callId = `call_${randomUUID()}`;
    let expected = 0;
    for (const mark of ["opens", "none", "settles"] as const) {
      const entryId = `ent_${randomUUID()}`;
      const outcome = await ledger.append(callId, expected, { entryId, data: PADDING + mark, mark });
      if (outcome.kind !== "appended") throw new Error(`the only writer of ${callId} met ${outcome.kind}`);
      expected = outcome.version;
      // Written with a system call of its own: a line that is out was acknowledged, whatever happens to this process.
      writeSync(1, `${callId} ${entryId} ${expected} ${mark}\n`);
      // Some calls stay open.
      if (mark === "none" && entryId.endsWith("0")) break;
    }
  }
}

await Promise.all(Array.from({ length: WRITERS }, write));
