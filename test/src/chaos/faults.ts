/** The faults that a chaos run injects, and the plan of them as a file. */

/** What is done to a process: killed, stopped and woken, asked to end; it is started again at the end. */
export const PROCESS_FAULTS = ["kill", "stop", "restart"] as const;
/**
 * What is done to a link:
 * `cut` ends its connections, and refuses new ones until the end; `delay` adds time to each piece; `hold` keeps back what is sent
 * (one way or both) and delivers it in the end, as a network does that comes back; `swallow` loses it, and ends the connections in the
 * end; `split` hands it on in odd pieces; `drop` loses packets below TCP, where the machine allows, else it is a `hold`.
 */
export const LINK_FAULTS = ["cut", "delay", "hold", "swallow", "split", "drop"] as const;

export type ProcessFault = (typeof PROCESS_FAULTS)[number];
export type LinkFault = (typeof LINK_FAULTS)[number];
export type Direction = "up" | "down" | "both";

/** Kinds of processes, and of links by what they join. */
export const PROCESS_KINDS = ["broker", "nats", "runner"] as const;
export const LINK_KINDS = ["broker-nats", "runner-broker", "agent-broker", "nats-nats"] as const;

export interface Fault {
  /** After the load began. */
  readonly atMs: number;
  /** Until it is healed. */
  readonly forMs: number;
  readonly kind: ProcessFault | LinkFault;
  /** `broker-1`, or a group of links: `broker-nats:1` (all of broker 1), `broker-nats:1:2` (its link to NATS server 2). */
  readonly target: string;
  /** Of link faults; `up` is what the first of the two names sends. */
  readonly direction?: Direction;
  /** Of `delay`, added to each piece. */
  readonly delayMs?: number;
}

/** A plan that cannot be carried out. */
export class PlanError extends Error {
  override readonly name = "PlanError";
}

const PROCESS_TARGET = new RegExp(`^(${PROCESS_KINDS.join("|")})-[1-9]$`);
const LINK_TARGET = new RegExp(`^(${LINK_KINDS.join("|")}):[1-9](:[1-9])?$`);

/** Name of the kind for counts: `broker kill`, `broker-nats hold`. */
export function faultName({ kind, target }: Fault): string {
  return `${(PROCESS_TARGET.exec(target) ?? LINK_TARGET.exec(target))?.[1] ?? target} ${kind}`;
}

/** One line for people. */
export function describeFault(fault: Fault): string {
  const { atMs, forMs, kind, target, direction, delayMs } = fault;
  const more = [direction, delayMs === undefined ? undefined : `${delayMs} ms`].filter((each) => each !== undefined).join(", ");
  return `${(atMs / 1_000).toFixed(1).padStart(7)} s  ${kind} ${target}${more === "" ? "" : ` (${more})`} for ${(forMs / 1_000).toFixed(1)} s`;
}

/** The plan as text: JSON, one fault a line, so that lines can be taken out. */
export function writePlan(faults: readonly Fault[]): string {
  return `[\n${faults.map((fault) => JSON.stringify(fault)).join(",\n")}\n]\n`;
}

/** Reads what {@link writePlan} wrote, or somebody wrote by hand. Throws {@link PlanError} naming the fault and what is wrong. */
export function readPlan(text: string): readonly Fault[] {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new PlanError("the plan is not JSON: an array of faults, separated by commas", { cause });
  }
  if (!Array.isArray(value)) throw new PlanError("the plan is not an array of faults");
  return value.map((each: unknown, index) => checkedFault(each, `fault ${index + 1}`)).sort((a, b) => a.atMs - b.atMs);
}

const FIELDS = new Set(["atMs", "forMs", "kind", "target", "direction", "delayMs"]);

function checkedFault(value: unknown, where: string): Fault {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new PlanError(`${where} is not an object`);
  const unknown = Object.keys(value).find((field) => !FIELDS.has(field));
  if (unknown !== undefined) throw new PlanError(`${where} has a field ${JSON.stringify(unknown)}; there are ${[...FIELDS].join(", ")}`);
  const { atMs, forMs, kind, target, direction, delayMs } = value as Record<string, unknown>;
  const at = checkedMs(atMs, `atMs of ${where}`);
  const duration = checkedMs(forMs, `forMs of ${where}`);
  const place = checkedTarget(target, where);
  const fault = { atMs: at, forMs: duration, target: place };
  if (PROCESS_TARGET.test(place)) {
    if (direction !== undefined || delayMs !== undefined)
      throw new PlanError(`${where} is done to a process: it has no direction and no delayMs`);
    return { ...fault, kind: oneOf(PROCESS_FAULTS, kind, `kind of ${where}, done to ${place},`) };
  }
  return {
    ...fault,
    kind: oneOf(LINK_FAULTS, kind, `kind of ${where}, done to ${place},`),
    ...(direction === undefined ? {} : { direction: oneOf(["up", "down", "both"] as const, direction, `direction of ${where}`) }),
    ...(delayMs === undefined ? {} : { delayMs: checkedMs(delayMs, `delayMs of ${where}`) }),
  };
}

function checkedTarget(target: unknown, where: string): string {
  if (typeof target === "string" && (PROCESS_TARGET.test(target) || LINK_TARGET.test(target))) return target;
  throw new PlanError(`target of ${where} is ${JSON.stringify(target)}: write broker-1, nats-2, runner-3, or ${LINK_KINDS.join(":1, ")}:1`);
}

function checkedMs(value: unknown, what: string): number {
  if (typeof value === "number" && Number.isFinite(value) && value >= 0 && value <= 86_400_000) return value;
  throw new PlanError(`${what} is ${JSON.stringify(value)}: a number of milliseconds, 0 or more`);
}

function oneOf<T extends string>(all: readonly T[], value: unknown, what: string): T {
  const found = all.find((each) => each === value);
  if (found === undefined) throw new PlanError(`${what} is ${JSON.stringify(value)}: one of ${all.join(", ")}`);
  return found;
}
