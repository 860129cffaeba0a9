/**
 * A broker's way to the shared bus, with the faults that a bus may have: messages are late, lost, or come twice, requests time
 * out though they were carried out, and a broker can be cut off, from all others or from one. Records are never lost, only late.
 */
import type { LocalBusHub } from "../../bus/local/local-bus.js";
import { type Bus, BusError, type Registry, type RegistryChange } from "../../domain/ports/bus.js";
import type { SimProcess } from "./world.test.kit.js";

export interface BusFaults {
  /** Part of the messages that get lost. */
  lost: number;
  /** Part of the messages that come twice. */
  twice: number;
  /** Part of the messages that are late, up to `lateMs`. */
  late: number;
  lateMs: number;
}

/** Which brokers cannot hear each other. */
export class Cuts {
  private readonly alone = new Set<string>();
  private readonly pairs = new Set<string>();

  cutOff(broker: string, cut: boolean): void {
    change(this.alone, broker, cut);
  }

  cutPair(a: string, b: string, cut: boolean): void {
    change(this.pairs, [a, b].sort().join(" "), cut);
  }

  isOff(broker: string): boolean {
    return this.alone.has(broker);
  }

  between(a: string, b: string): boolean {
    return a !== b && (this.alone.has(a) || this.alone.has(b) || this.pairs.has([a, b].sort().join(" ")));
  }

  heal(): void {
    this.alone.clear();
    this.pairs.clear();
  }
}

function change(set: Set<string>, key: string, present: boolean): void {
  if (present) {
    set.add(key);
  } else {
    set.delete(key);
  }
}

/** A broker learns this long after it was cut off that its connection is down. */
const NOTICED_MS = 150;
/** A write to a registry is given up after this time; it may have been stored. */
const PATIENCE_MS = 1_000;

export function createSimBus(process: SimProcess, hub: LocalBusHub, cuts: Cuts, faults: BusFaults): Bus {
  const { world, name } = process;
  const { random } = process;
  const inner = hub.connect();
  const stateListeners = new Set<(state: "up" | "down") => void>();
  let state: "up" | "down" = "up";
  let closed = false;

  function look(): void {
    if (closed || process.dead) {
      return;
    }
    const present = cuts.isOff(name) ? "down" : "up";
    if (present !== state) {
      state = present;
      process.deliver(() => {
        for (const listener of stateListeners) {
          listener(present);
        }
      });
    }
    world.after(NOTICED_MS, look);
  }
  world.after(NOTICED_MS, look);

  const transitMs = (): number => (random.chance(faults.late) ? random.between(0, faults.lateMs) : random.between(0.1, 2));

  /** False: the message is lost. */
  async function carried(from: string, to: string): Promise<boolean> {
    const lost = cuts.between(from, to) || random.chance(faults.lost);
    await world.sleep(transitMs());
    return !lost && !cuts.between(from, to);
  }

  const never = new Promise<never>(() => undefined);
  const tagged = (payload: string): string => `${name} ${payload}`;
  function untagged(text: string): { readonly from: string; readonly payload: string } {
    const space = text.indexOf(" ");
    return { from: text.slice(0, space), payload: text.slice(space + 1) };
  }

  function checkUp(): void {
    if (state === "down") {
      throw new BusError("unreachable", "the bus is down");
    }
  }

  async function answered<T>(asked: Promise<T>): Promise<T> {
    try {
      return await asked;
    } finally {
      await process.turn(0);
    }
  }

  async function registry(registryName: string): Promise<Registry> {
    const shared = await inner.registry(registryName);

    async function there<T>(work: () => Promise<T>): Promise<T> {
      const givenUpAt = world.now + PATIENCE_MS;
      while (cuts.isOff(name)) {
        await world.sleep(20);
        if (world.now >= givenUpAt) {
          await process.turn(0);
          throw new BusError("unreachable", "the registry does not answer");
        }
      }
      await world.sleep(transitMs());
      const outcome = await work();
      await world.sleep(transitMs());
      await process.turn(0);
      return outcome;
    }

    return {
      put: (key, value) => there(() => shared.put(key, value)),
      update: (key, value, expected) => there(() => shared.update(key, value, expected)),
      get: (key) => there(() => shared.get(key)),
      delete: (key, expected) => there(() => shared.delete(key, expected)),
      list: () => there(() => shared.list()),
      async watch(listener) {
        let last: Promise<void> = Promise.resolve();
        let active = true;
        const tell = (change: RegistryChange): void => {
          last = last.then(async () => {
            await world.sleep(transitMs());
            while (cuts.isOff(name)) {
              await world.sleep(20);
            }
            await process.turn(0);
            if (active) {
              listener(change);
            }
          });
        };
        const subscription = await shared.watch(tell);
        await last;
        return {
          unsubscribe() {
            active = false;
            subscription.unsubscribe();
          },
        };
      },
    };
  }

  return {
    description: inner.description,
    publish(subject, payload) {
      if (state === "up") {
        inner.publish(subject, tagged(payload));
      }
    },
    subscribe(subject, listener) {
      return inner.subscribe(subject, (text, from) => {
        const message = untagged(text);
        const receive = async (): Promise<void> => {
          if (await carried(message.from, name)) {
            process.deliver(() => listener(message.payload, from));
          }
        };
        void receive();
        if (random.chance(faults.twice)) {
          void receive();
        }
      });
    },
    async request(subject, payload, options) {
      checkUp();
      return answered(inner.request(subject, tagged(payload), options));
    },
    async requestMany(subject, payload, options) {
      checkUp();
      return answered(inner.requestMany(subject, tagged(payload), options));
    },
    respond(subject, responder) {
      return inner.respond(subject, async (text, asked) => {
        const message = untagged(text);
        const serve = async (): Promise<string | undefined> => {
          if (!(await carried(message.from, name))) {
            return never;
          }
          await process.turn(0);
          const answer = await responder(message.payload, asked);
          return (await carried(name, message.from)) ? answer : never;
        };
        if (random.chance(faults.twice)) {
          serve().catch(() => undefined);
        }
        return serve();
      });
    },
    registry,
    async check() {
      checkUp();
    },
    onState(listener) {
      stateListeners.add(listener);
      listener(state);
      return { unsubscribe: () => stateListeners.delete(listener) };
    },
    async close() {
      closed = true;
      await inner.close();
    },
  };
}
