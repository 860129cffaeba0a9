/** The simulation that the wire is tested with: real brokers on a ledger, a bus and clocks that stand still until told. */
export { checkAtRest, checkHistory } from "../../../broker/dist/wire/schedule/check-invariants.test.kit.js";
export { SimAgents } from "../../../broker/dist/wire/schedule/sim-agents.test.kit.js";
export { type SimRunnerOptions, SUBMISSION_TOOL } from "../../../broker/dist/wire/schedule/sim-execution.test.kit.js";
export {
  DEFAULT_FIGURES,
  type Figures,
  SIM_AGENT,
  SIM_TOOLS,
  type SimBroker,
  SimSite,
  type SimTool,
  type SiteRunner,
} from "../../../broker/dist/wire/schedule/sim-site.test.kit.js";
export { Random, SimProcess } from "../../../broker/dist/wire/schedule/world.test.kit.js";
