/**
 * The bus inside one process. A hub joins the buses of several brokers in one process; a broker of its own needs only one.
 *
 * It behaves like the bus on NATS wherever a caller can see it:
 * 1. Nothing is delivered inside the caller's call; what one bus publishes arrives in order.
 * 2. Only strings cross, so nobody shares an object by accident.
 * 3. Requests also reach plain subscribers, which cannot answer; only a subject that nobody listens to has "no responder".
 */
import { BUS_MESSAGE_BYTES_MAX, type Bus, BusError, type Registry, type Subscription } from "../../domain/ports/bus.js";
import type { Clock } from "../../domain/ports/clock.js";
import type { Log } from "../../domain/ports/log.js";
import { checkRegistryName, checkSubject, checkSubscription } from "../subjects.js";
import { createSharedRegistry, type SharedRegistry } from "./local-registry.js";
import { createSubjectIndex } from "./subject-index.js";

export interface LocalBusOptions {
  /** Times requests; default: the process's timers. */
  readonly clock?: Pick<Clock, "schedule"> | undefined;
  /** Told when a responder rejects; default: nobody. */
  readonly log?: Log | undefined;
}

export interface LocalBusHub {
  /** A bus that shares messages and registries with all others of this hub. */
  connect(): Bus;
}

/** A bus of its own. */
export function createLocalBus(options: LocalBusOptions = {}): Bus {
  return createLocalBusHub(options).connect();
}

type Delivery = (payload: string, subject: string, answer: ((text: string | undefined) => void) | undefined) => void;

const processTimers: Pick<Clock, "schedule"> = {
  schedule(delayMs, task) {
    const timer = setTimeout(task, delayMs);
    return { cancel: () => clearTimeout(timer) };
  },
};

/** Joins the buses of several brokers in one process. */
export function createLocalBusHub(options: LocalBusOptions = {}): LocalBusHub {
  const clock = options.clock ?? processTimers;
  const listeners = createSubjectIndex<{ readonly deliver: Delivery; readonly answers: boolean }>();
  const registries = new Map<string, SharedRegistry>();

  function connect(): Bus {
    let closed = false;
    const mine = new Set<() => void>();
    const views = new Map<string, Registry>();
    const pending = new Set<() => void>();
    const stateListeners = new Set<() => void>();

    function listen(subject: string, answers: boolean, deliver: Delivery): Subscription {
      checkSubscription(subject);
      if (closed) throw new BusError("closed", "The bus is closed.");
      let active = true;
      const remove = listeners.add(subject, {
        answers,
        deliver(payload, name, answer) {
          if (active) deliver(payload, name, answer);
          else answer?.(undefined);
        },
      });
      const end = (): void => {
        active = false;
        remove();
        mine.delete(end);
      };
      mine.add(end);
      return { unsubscribe: end };
    }

    function checkMessage(subject: string, payload: string): void {
      checkSubject(subject);
      const bytes = Buffer.byteLength(payload);
      if (bytes > BUS_MESSAGE_BYTES_MAX) {
        throw new BusError("too_large", `A message to ${subject} has ${bytes} bytes; at most ${BUS_MESSAGE_BYTES_MAX} fit.`);
      }
    }

    /** Sends to all and collects answers: until `max`, until nobody is left who could, or until the time is up. */
    async function ask(subject: string, payload: string, timeoutMs: number, max: number): Promise<{ answers: string[]; heard: boolean }> {
      checkMessage(subject, payload);
      if (closed) throw new BusError("closed", "The bus is closed.");
      const targets = listeners.match(subject);
      if (targets.length === 0) return { answers: [], heard: false };
      let open = targets.filter((target) => target.answers).length;
      return new Promise((resolve, reject) => {
        const answers: string[] = [];
        const finish = (): void => {
          timer.cancel();
          pending.delete(abort);
          resolve({ answers, heard: true });
        };
        const abort = (): void => {
          timer.cancel();
          reject(new BusError("closed", "The bus was closed while a request waited."));
        };
        const timer = clock.schedule(timeoutMs, finish);
        pending.add(abort);
        const answer = (text: string | undefined): void => {
          open -= 1;
          if (answers.length >= max) return;
          if (text !== undefined) answers.push(text);
          // Who collects many can stop when nobody is left to answer; who wants one keeps the time that NATS would take.
          if (answers.length >= max || (open === 0 && max > 1)) queueMicrotask(finish);
        };
        for (const target of targets) {
          queueMicrotask(() => target.deliver(payload, subject, target.answers ? once(answer) : undefined));
        }
      });
    }

    return {
      description: { kind: "local" },
      publish(subject, payload) {
        checkMessage(subject, payload);
        if (closed) return;
        for (const target of listeners.match(subject)) {
          if (!target.answers) queueMicrotask(() => target.deliver(payload, subject, undefined));
        }
      },
      subscribe(subject, listener) {
        return listen(subject, false, (payload, name) => listener(payload, name));
      },
      async request(subject, payload, { timeoutMs }) {
        const { answers, heard } = await ask(subject, payload, timeoutMs, 1);
        if (!heard) throw new BusError("no_responder", `Nobody listens to ${subject}.`);
        const [answer] = answers;
        if (answer === undefined) throw new BusError("timeout", `Nobody answered ${subject} within ${timeoutMs} ms.`);
        return answer;
      },
      async requestMany(subject, payload, { timeoutMs, max }) {
        if (max < 1) return [];
        return (await ask(subject, payload, timeoutMs, max)).answers;
      },
      respond(subject, responder) {
        return listen(subject, true, (payload, name, answer) => {
          if (answer === undefined) return;
          void Promise.resolve()
            .then(() => responder(payload, name))
            .then((text) => {
              if (text !== undefined && Buffer.byteLength(text) > BUS_MESSAGE_BYTES_MAX) {
                throw new BusError("too_large", `An answer to ${name} is over ${BUS_MESSAGE_BYTES_MAX} bytes.`);
              }
              answer(text);
            })
            .catch((error: unknown) => {
              options.log?.error("bus_responder_failed", { subject: name, error: error instanceof Error ? error.message : "unknown" });
              answer(undefined);
            });
        });
      },
      async registry(name) {
        checkRegistryName(name);
        if (closed) throw new BusError("closed", "The bus is closed.");
        const shared = registries.get(name) ?? createSharedRegistry();
        registries.set(name, shared);
        const view = views.get(name) ?? shared.view(() => closed);
        views.set(name, view);
        return view;
      },
      async check() {
        if (closed) throw new BusError("unreachable", "The bus is closed.");
      },
      onState(listener) {
        listener(closed ? "down" : "up");
        const end = (): void => listener("down");
        stateListeners.add(end);
        return { unsubscribe: () => stateListeners.delete(end) };
      },
      async close() {
        if (closed) return;
        closed = true;
        for (const end of [...mine]) end();
        for (const abort of [...pending]) abort();
        for (const [name, view] of views) registries.get(name)?.release(view);
        for (const tell of [...stateListeners]) tell();
      },
    };
  }

  return { connect };
}

/** Passes on the first call only. */
function once(task: (text: string | undefined) => void): (text: string | undefined) => void {
  let done = false;
  return (text) => {
    if (done) return;
    done = true;
    task(text);
  };
}
