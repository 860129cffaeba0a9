/** Results against the output schemas of their tools, wherever they are stored. */
import type { StoredText } from "../domain/call/call-state.js";
import type { FaultDetail } from "../domain/fault.js";
import type { DrivenCall, DriverContext } from "./driver-context.js";

/** What is wrong with a result of this call; empty: nothing. */
export async function faultsOf(
  { ledger, resultFaults }: Pick<DriverContext, "ledger" | "resultFaults">,
  driver: DrivenCall,
  value: StoredText,
): Promise<readonly FaultDetail[]> {
  const json = value.kind === "inline" ? value.json : await ledger.blobs.get(value.name);
  return resultFaults(driver.known.record.request, json);
}
