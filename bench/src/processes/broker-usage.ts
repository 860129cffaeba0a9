/** What both brokers answer about themselves in the same way. */
import { processHealth } from "./process-health.js";
import { processUsage } from "./process-usage.js";
import type { BrokerRole } from "./roles.js";

/** The part of a broker's role that does not depend on what it does. */
export function brokerUsage(): Omit<BrokerRole, "start" | "stop"> {
  return { ...processHealth(), ...processUsage() };
}
