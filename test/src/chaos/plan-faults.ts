/**
 * The schedule of a run, computed from its seed before it begins.
 *
 * Invariants: the same options give the same plan; a target has one fault at a time; a NATS server falls out, by whatever fault, only
 * while the others are whole, but for rare moments in which two do; the last fault ends before the load does.
 */
import { type Direction, type Fault, faultName, LINK_FAULTS, LINK_KINDS, PROCESS_FAULTS, PROCESS_KINDS } from "./faults.js";
import { type SeededRandom, seededRandom } from "./seeded-random.js";

export interface PlanOptions {
  readonly seed: number;
  /** Of the load. */
  readonly durationMs: number;
  readonly brokers: number;
  readonly natsServers: number;
  readonly runners: number;
  /** Names of kinds to use, such as `broker kill` or `broker-nats hold`; a part of a name stands for all that hold it. Default: all. */
  readonly kinds?: readonly string[];
  /** Mean time between two faults. Default 2,500. */
  readonly everyMs?: number;
}

const EVERY_MS = 2_500;
const FIRST_MS = 2_000;
/** After the last fault calls go through undisturbed for so long. */
const CALM_MS = 2_000;
const TWO_NATS_CHANCE = 0.05;

/** Names of all kinds of faults. */
export const FAULT_NAMES: readonly string[] = [
  ...PROCESS_KINDS.flatMap((process) => PROCESS_FAULTS.map((kind) => `${process} ${kind}`)),
  ...LINK_KINDS.flatMap((link) => LINK_FAULTS.map((kind) => `${link} ${kind}`)),
];

/** The faults in the order of their times. */
export function planFaults(options: PlanOptions): readonly Fault[] {
  const random = seededRandom(options.seed, "plan");
  const { kinds = [""], durationMs, everyMs = EVERY_MS } = options;
  const names = FAULT_NAMES.filter((name) => kinds.some((kind) => name.includes(kind)));
  const faults: Fault[] = [];
  if (names.length === 0) return faults;
  for (let atMs = FIRST_MS; ; atMs += Math.round(-Math.log(1 - random.next()) * everyMs) + 50) {
    const forMs = Math.min(lengthMs(random), durationMs - CALM_MS - atMs);
    if (forMs < 100) return faults;
    const fault = drawFault(random, names, options, atMs, forMs);
    if (mayHappen(fault, faults, random)) faults.push(fault);
  }
}

/** Most are short; some outlast a lease (15 s) and what waits for one. */
function lengthMs(random: SeededRandom): number {
  if (random.chance(0.5)) return random.between(100, 2_500);
  return random.chance(0.7) ? random.between(2_500, 9_000) : random.between(9_000, 26_000);
}

function drawFault(random: SeededRandom, names: readonly string[], options: PlanOptions, atMs: number, forMs: number): Fault {
  // Links have more kinds of faults than processes: that should not make dead processes rare.
  const ofProcesses = names.filter((name) => PROCESS_KINDS.some((process) => name.startsWith(`${process} `)));
  const ofLinks = names.filter((name) => !ofProcesses.includes(name));
  const group = ofLinks.length === 0 || (ofProcesses.length > 0 && random.chance(0.55)) ? ofProcesses : ofLinks;
  const [place = "", kind = ""] = random.pick(group).split(" ");
  const process = PROCESS_KINDS.find((each) => each === place);
  if (process !== undefined) {
    const counts = { broker: options.brokers, nats: options.natsServers, runner: options.runners };
    return { atMs, forMs, kind: kind as Fault["kind"], target: `${process}-${random.between(1, counts[process])}` };
  }
  return { atMs, forMs, kind: kind as Fault["kind"], target: linkTarget(random, place, options), ...details(random, kind) };
}

function linkTarget(random: SeededRandom, place: string, options: PlanOptions): string {
  switch (place) {
    case "broker-nats": {
      const broker = random.between(1, options.brokers);
      return random.chance(0.5) ? `${place}:${broker}` : `${place}:${broker}:${random.between(1, options.natsServers)}`;
    }
    case "runner-broker":
      return `${place}:${random.between(1, options.runners)}`;
    case "agent-broker":
      return `${place}:${random.between(1, options.brokers)}`;
    default:
      return `${place}:${random.between(1, options.natsServers)}`;
  }
}

function details(random: SeededRandom, kind: string): Partial<Fault> {
  if (kind === "delay") return { delayMs: random.between(5, 800) };
  const direction: Direction = random.pick(["up", "down", "both"] as const);
  return kind === "cut" || kind === "split" ? {} : { direction };
}

function mayHappen(fault: Fault, planned: readonly Fault[], random: SeededRandom): boolean {
  const now = planned.filter((other) => other.atMs + other.forMs + 200 > fault.atMs);
  const part = (target: string): string => target.split(":").slice(0, 2).join(":");
  if (now.some((other) => part(other.target) === part(fault.target))) return false;
  if (!weakensNats(fault)) return true;
  return !now.some(weakensNats) || random.chance(TWO_NATS_CHANCE);
}

/** Whether a NATS server may fall out of its cluster. */
function weakensNats(fault: Fault): boolean {
  const name = faultName(fault);
  return name.startsWith("nats ") || (name.startsWith("nats-nats ") && fault.kind !== "split" && fault.kind !== "delay");
}
