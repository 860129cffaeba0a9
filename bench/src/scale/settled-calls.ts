/** Whether a call costs more where many settled calls are stored. */
import { openStores, type Stores } from "../measure.js";
import { startProgram } from "../processes/role-process.js";
import type { LedgerKind, LedgerPlace } from "../processes/roles.js";
import { type Contrast, inTurns } from "./contrast.js";
import type { ScaleContext } from "./idle-sessions.js";
import type { LedgerFillRole } from "./roles.js";
import { Scene } from "./scene.js";

const IN_FLIGHT = 64;

export interface SettledCalls {
  readonly contrast: Contrast;
  /** How long it took to store them, and until listings showed them. */
  readonly fillMs: number;
  readonly indexedMs: number;
}

/** Fills one store through the ledger's port, the other one a little, and loads the brokers on both in turn. */
export async function measureSettledCalls(ledger: LedgerKind, context: ScaleContext): Promise<SettledCalls> {
  const stores: Stores[] = [];
  const scenes: Scene[] = [];
  const filled = async (calls: number): Promise<{ readonly scene: Scene; readonly fillMs: number; readonly indexedMs: number }> => {
    const store = await openStores(ledger, context.natsServer);
    stores.push(store);
    const place = await store.placeFor("product");
    const fillMs = await fillSettled(place, calls);
    const scene = await Scene.start({ ledger: place, index: context.index });
    scenes.push(scene);
    return { scene, fillMs, indexedMs: context.index ? await (await scene.filler()).ask("indexed") : 0 };
  };
  try {
    const few = await filled(context.fewSettled);
    const many = await filled(context.settled);
    const load = { inFlight: IN_FLIGHT, durationMs: context.loadMs };
    const samples = await inTurns(few.scene, many.scene, { ...context, load });
    for (const scene of scenes.splice(0)) await scene.stop();
    return {
      contrast: { ledger, what: "settled calls stored", few: context.fewSettled, many: context.settled, ...samples },
      fillMs: many.fillMs,
      indexedMs: many.indexedMs,
    };
  } finally {
    await Promise.allSettled(scenes.map((scene) => scene.end()));
    for (const store of stores) await store.dispose();
  }
}

/** Has a broker carry calls out for a template, then stores copies of one of them. Resolves with the time of the copying. */
export async function fillSettled(place: LedgerPlace, calls: number): Promise<number> {
  const template = await Scene.start({ ledger: place, index: false });
  await template.stop();
  const filler = startProgram<LedgerFillRole>("scale", "ledger-fill");
  try {
    return await filler.ask("copy", { place, calls });
  } finally {
    await filler.end();
  }
}
