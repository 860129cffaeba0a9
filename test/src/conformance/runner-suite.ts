/** The suite for runners: all cases over one wire. */
import { codecCase } from "./codec-cases.js";
import { type CaseOutcome, runCases } from "./run-cases.js";
import { CANCEL_CASES, GRANT_CASES, HANDSHAKE_CASES, type RunnerCase } from "./runner-cases.js";
import { LIFE_CASES, PING_CASES } from "./runner-life-cases.js";
import { openRunnerStage } from "./runner-stage.js";
import type { Wire } from "./scripted-broker.js";
import type { SubjectCommand } from "./subject.js";

export const RUNNER_CASES: readonly RunnerCase[] = [
  codecCase(),
  ...HANDSHAKE_CASES,
  ...GRANT_CASES,
  ...CANCEL_CASES,
  ...PING_CASES,
  ...LIFE_CASES,
];

export interface SuiteOptions {
  /** Cases with these ids; all by default. */
  readonly only?: readonly string[];
  /** Cases side by side; 6 by default. */
  readonly atOnce?: number;
  readonly onOutcome?: (outcome: CaseOutcome) => void;
}

export function runRunnerSuite(command: SubjectCommand, wire: Wire, options: SuiteOptions = {}): Promise<CaseOutcome[]> {
  const { only, atOnce = 6, onOutcome } = options;
  const cases = RUNNER_CASES.filter(({ id }) => only === undefined || only.includes(id));
  return runCases(cases, () => openRunnerStage(command, wire), { atOnce, ...(onOutcome === undefined ? {} : { onOutcome }) });
}
