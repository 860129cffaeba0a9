import type { Scenario } from "../scenario.js";
import { CALL_SCENARIOS } from "./calls.js";
import { CATALOG_SCENARIOS } from "./catalog.js";
import { FAILURE_SCENARIOS } from "./failures.js";
import { ORDER_SCENARIOS } from "./order.js";
import { ROUTING_SCENARIOS } from "./routing.js";
import { SUBMISSION_SCENARIOS } from "./submissions.js";

export const SCENARIOS: readonly Scenario[] = [
  ...CALL_SCENARIOS,
  ...SUBMISSION_SCENARIOS,
  ...ROUTING_SCENARIOS,
  ...ORDER_SCENARIOS,
  ...FAILURE_SCENARIOS,
  ...CATALOG_SCENARIOS,
];
