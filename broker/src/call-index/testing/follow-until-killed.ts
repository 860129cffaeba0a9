/** A process that fills an index file and is killed at it: `node follow-until-killed.js FILE CALLS`. Says "following" once it does. */
import { createCallIndex } from "../call-index.js";
import { generatedLedger } from "./generated-ledger.js";

const [file = "", calls = "0"] = process.argv.slice(2);
// Nobody reads on once the kill is under way.
process.stdout.on("error", () => undefined);
const say = (event: string): void => void process.stdout.write(`${event}\n`);
const index = createCallIndex({
  ledger: generatedLedger(Number(calls)),
  file,
  log: { debug: say, info: say, warn: say, error: say },
  catchUpWaitMs: 60_000,
});
await index.start();
// The version is the ledger's own: the second hundred of entries is there, more are to come.
await index.list("default", {}, {}, { atLeast: 200 });
say("following");
await index.list("default", {}, {}, { atLeast: 2 * Number(calls) });
say("finished");
