/** The suite for brokers: all cases over one encoding. */
import type { FrameEncoding } from "@toolrunner/proto";
import { BROKER_CASES } from "./broker-cases.js";
import { openBrokerStage } from "./broker-stage.js";
import { type CaseOutcome, runCases } from "./run-cases.js";
import type { SuiteOptions } from "./runner-suite.js";
import type { SubjectCommand } from "./subject.js";

export function runBrokerSuite(command: SubjectCommand, encoding: FrameEncoding, options: SuiteOptions = {}): Promise<CaseOutcome[]> {
  const { only, atOnce = 4, onOutcome } = options;
  const cases = BROKER_CASES.filter(({ id }) => only === undefined || only.includes(id));
  return runCases(cases, () => openBrokerStage(command, encoding), { atOnce, ...(onOutcome === undefined ? {} : { onOutcome }) });
}
