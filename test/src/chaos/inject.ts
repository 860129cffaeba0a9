/** Carries a plan of faults out on a fleet, and heals everything at its end. */
import type { NatsServer } from "../kit/index.js";
import { type Fault, faultName } from "./faults.js";
import type { Fleet } from "./fleet.js";
import type { Link } from "./link.js";

/** A fault that was carried out. */
export interface Injected {
  readonly fault: Fault;
  readonly fromMs: number;
  readonly toMs: number;
}

export interface Injection {
  /** Counts by kind, of what was carried out: a process that does not run cannot be killed. */
  readonly counts: ReadonlyMap<string, number>;
  readonly injected: readonly Injected[];
}

/** Runs the plan from now on. Resolves when each fault has ended; rejects when a process does not come back. */
export async function injectFaults(fleet: Fleet, plan: readonly Fault[], say: (line: string) => void): Promise<Injection> {
  const counts = new Map<string, number>();
  const injected: Injected[] = [];
  const began = performance.now();
  await Promise.all(
    plan.map(async (fault) => {
      await sleep(fault.atMs - (performance.now() - began));
      const heal = await begin(fleet, fault);
      if (heal === undefined) {
        say(`  not done: ${fault.kind} ${fault.target}, which does not run`);
        return;
      }
      counts.set(faultName(fault), (counts.get(faultName(fault)) ?? 0) + 1);
      const fromMs = Date.now();
      await sleep(fault.atMs + fault.forMs - (performance.now() - began));
      await heal();
      injected.push({ fault, fromMs, toMs: Date.now() });
    }),
  );
  return { counts, injected };
}

/** Ends every fault, and starts whatever does not run. */
export async function healAll(fleet: Fleet): Promise<void> {
  for (const link of fleet.links.values()) link.heal();
  for (const member of [...fleet.brokers, ...fleet.runners]) member.resume();
  for (const node of fleet.nats.nodes) if (node.running) node.resume();
  await fleet.nats.heal();
  await Promise.all([...fleet.brokers, ...fleet.runners].map((member) => member.ensureUp()));
}

type Heal = () => Promise<void>;

async function begin(fleet: Fleet, fault: Fault): Promise<Heal | undefined> {
  const [kind, place] = fault.target.split("-");
  const index = Number(place) - 1;
  if (!fault.target.includes(":")) {
    if (kind === "nats") return beginNats(fleet.nats.nodes[index], fault);
    return beginMember((kind === "broker" ? fleet.brokers : fleet.runners)[index], fault);
  }
  const links = [...fleet.links].filter(([name]) => isPart(name, fault.target)).map(([, link]) => link);
  return links.length === 0 ? undefined : beginLinks(links, fault);
}

/** A link between two servers belongs to both: whoever is cut off is cut off both ways. */
function isPart(link: string, target: string): boolean {
  if (link === target || link.startsWith(`${target}:`)) return true;
  const [kind, one] = target.split(":");
  return kind === "nats-nats" && link.startsWith("nats-nats:") && link.endsWith(`:${one}`);
}

function beginLinks(links: readonly Link[], { kind, direction = "both", delayMs = 100 }: Fault): Heal {
  if (kind === "kill" || kind === "stop" || kind === "restart") throw new Error(`${kind} is no fault of a link`);
  for (const link of links) link.afflict({ kind, direction, delayMs });
  return () => {
    for (const link of links) link.heal();
    return Promise.resolve();
  };
}

async function beginMember(member: Fleet["brokers"][number] | undefined, { kind }: Fault): Promise<Heal | undefined> {
  if (member?.healthy !== true) return undefined;
  if (kind === "stop") {
    member.pause();
    return () => {
      member.resume();
      return Promise.resolve();
    };
  }
  const ended = kind === "kill" ? member.kill() : member.terminate();
  return async () => {
    await ended;
    await member.ensureUp();
  };
}

async function beginNats(node: NatsServer | undefined, { kind }: Fault): Promise<Heal | undefined> {
  if (node?.running !== true) return undefined;
  if (kind === "stop") {
    node.pause();
    return () => {
      node.resume();
      return Promise.resolve();
    };
  }
  const ended = kind === "kill" ? node.kill9() : node.stop();
  return async () => {
    await ended;
    await node.restart();
  };
}

function sleep(ms: number): Promise<void> {
  return ms <= 0 ? Promise.resolve() : new Promise((resolve) => setTimeout(resolve, ms));
}
