/** Many light runners, or bare connections, in one process. */
import { serveRole } from "../processes/serve-role.js";
import { LightRunner } from "./light-runner.js";
import type { FleetRole, FleetSetup, FleetStatus } from "./roles.js";

const runners: LightRunner[] = [];
const endings: Record<string, number> = {};
const count = { welcome: 0, lost: 0, held: 0, answered: 0 };
/** Looks again whether what it waits for has come. */
const waiting = new Set<() => void>();

function changed(): void {
  for (const look of waiting) look();
}

function until(reached: () => boolean, withinMs: number, what: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const late = setTimeout(() => {
      waiting.delete(look);
      reject(new Error(`${what} was not reached within ${withinMs} ms: ${JSON.stringify(status())}`));
    }, withinMs);
    const look = (): void => {
      if (!reached()) return;
      clearTimeout(late);
      waiting.delete(look);
      resolve();
    };
    waiting.add(look);
    look();
  });
}

const status = (): FleetStatus => ({
  welcome: count.welcome,
  lost: count.lost,
  grantsTaken: count.held,
  grantsAnswered: count.answered,
  endings,
});

const CONNECT_WITHIN_MS = 180_000;

async function connect(setup: FleetSetup): Promise<number> {
  const begun = performance.now();
  const goal = count.welcome + setup.runners;
  let dialled = 0;
  const dialNext = (): void => {
    if (dialled === setup.runners) return;
    const runner = new LightRunner((setup.from ?? 0) + dialled, setup, {
      welcome() {
        count.welcome += 1;
        dialNext();
        changed();
      },
      ended(wasWelcome, how) {
        endings[how] = (endings[how] ?? 0) + 1;
        if (!wasWelcome) return;
        count.welcome -= 1;
        count.lost += 1;
      },
      held() {
        count.held += 1;
        changed();
      },
      answered() {
        count.answered += 1;
        changed();
      },
    });
    dialled += 1;
    runners.push(runner);
    runner.dial();
  };
  for (let each = 0; each < Math.min(setup.runners, setup.atOnce ?? setup.runners); each += 1) dialNext();
  await until(() => count.welcome >= goal, CONNECT_WITHIN_MS, `${goal} runners that are welcome`);
  return performance.now() - begun;
}

serveRole<FleetRole>({
  connect,
  reached: ({ withinMs, welcome = 0, lost = 0, held = 0, answered = 0 }) =>
    until(
      () => count.welcome >= welcome && count.lost >= lost && count.held >= held && count.answered >= answered,
      withinMs,
      JSON.stringify({ welcome, lost, held, answered }),
    ),
  allow(grants) {
    for (const runner of runners) runner.allow(grants);
  },
  status,
  stop() {
    for (const runner of runners) runner.stop();
  },
});
