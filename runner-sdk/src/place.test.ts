import { Visibility } from "@toolrunner/proto";
import { afterEach, describe, expect, it } from "vitest";
import type { HeldRunnerId, Place, PlaceFacts } from "./core/place.js";
import { createPlace } from "./place.test.kit.js";
import { makeRunner, stopRunners, until, work } from "./runner.test.kit.js";
import { createFakeBroker } from "./testing.js";

afterEach(stopRunners);

function runnerAt(place: Place, options: { readonly runnerId?: string } = {}) {
  const broker = createFakeBroker();
  const { runner } = makeRunner({ tools: [work(() => 1)], transport: { ...broker.transport, place }, ...options }, broker);
  return { runner, broker };
}

const VISIBLE: PlaceFacts = { visibility: "visible", focused: true };
const HIDDEN: PlaceFacts = { visibility: "hidden", focused: false };

describe("the place of a runner", () => {
  it("is told in the hello, then with each change, and never twice the same (R5)", async () => {
    const { place, become } = createPlace();
    const { runner, broker } = runnerAt(place);
    const started = runner.start();
    const session = await broker.nextSession();
    const hello = await session.welcome();
    await started;
    expect(hello.instanceState).toMatchObject({ visibility: Visibility.HIDDEN, focused: false });
    become(VISIBLE);
    become(VISIBLE);
    expect(await session.next("instanceState")).toMatchObject({ visibility: Visibility.VISIBLE, focused: true });
    become(HIDDEN);
    expect(await session.next("instanceState")).toMatchObject({ visibility: Visibility.HIDDEN, focused: false });
    await session.settleFrames();
    expect(session.all("instanceState")).toHaveLength(2);
  });

  it("that changed between hello and welcome is told after the welcome, not before (R5)", async () => {
    const { place, become } = createPlace();
    const { runner, broker } = runnerAt(place);
    const started = runner.start();
    const session = await broker.nextSession();
    await session.hello();
    become(VISIBLE);
    // The channel in memory delivers within the turn.
    await new Promise((resolve) => setImmediate(resolve));
    expect(session.all("instanceState")).toEqual([]);
    await session.welcome();
    await started;
    expect(await session.next("instanceState")).toMatchObject({ visibility: Visibility.VISIBLE });
  });

  it("that changed without an event is told with the next ping answer (R5)", async () => {
    const { place, become } = createPlace();
    const { runner, broker } = runnerAt(place);
    const started = runner.start();
    const session = await broker.nextSession();
    await session.welcome();
    await started;
    become(VISIBLE, true);
    await session.ping(1);
    expect(await session.next("instanceState")).toMatchObject({ focused: true });
  });

  it("is told anew in the hello of the next session (R5)", async () => {
    const { place, become } = createPlace();
    const { runner, broker } = runnerAt(place);
    const started = runner.start();
    const first = await broker.nextSession();
    await first.welcome();
    await started;
    first.sever();
    become(VISIBLE);
    expect(await (await broker.nextSession()).welcome()).toMatchObject({ instanceState: { visibility: Visibility.VISIBLE } });
  });

  it("gives the runner its id, which is given back at its end; one that the user chose comes first (R5)", async () => {
    const kept = createPlace("tab_one");
    const { runner, broker } = runnerAt(kept.place);
    const started = runner.start();
    const session = await broker.nextSession();
    expect(await session.welcome()).toMatchObject({ runnerId: "tab_one" });
    await started;
    expect(runner.runnerId).toBe("tab_one");
    expect(kept.watchers.size).toBe(1);
    await runner.stop();
    expect(kept.released).toEqual(["tab_one"]);
    expect(kept.watchers.size).toBe(0);

    const other = createPlace("tab_two");
    const chosen = runnerAt(other.place, { runnerId: "mine" });
    const starting = chosen.runner.start();
    expect(await (await chosen.broker.nextSession()).welcome()).toMatchObject({ runnerId: "mine" });
    await starting;
    await chosen.runner.stop();
    expect(other.released).toEqual([]);
  });

  it("that keeps no id leaves it to the journal, and one that has nothing to say is unknown (R1)", async () => {
    const { runner, broker } = runnerAt(createPlace(null).place);
    const started = runner.start();
    expect((await (await broker.nextSession()).welcome()).runnerId).toMatch(/^runner_/);
    await started;
    const plain = makeRunner({ tools: [work(() => 1)] });
    const starting = plain.runner.start();
    const hello = await (await plain.broker.nextSession()).welcome();
    await starting;
    expect(hello.instanceState).toMatchObject({ visibility: Visibility.UNKNOWN, focused: false });
  });

  it("does not keep a runner that is stopped while its id is sought from ending", async () => {
    let give: (id: HeldRunnerId) => void = () => {};
    const { place, watchers } = createPlace();
    const { runner } = runnerAt({ ...place, holdRunnerId: () => new Promise((resolve) => (give = resolve)) });
    const started = runner.start();
    started.catch(() => undefined);
    const stopped = runner.stop();
    let isReleased = false;
    // The id comes once the runner asks.
    await until("the id to be sought", () => {
      give({
        current: "tab_late",
        release: () => {
          isReleased = true;
        },
      });
      return isReleased;
    });
    await stopped;
    await expect(started).rejects.toThrow("stopped");
    expect(watchers.size).toBe(0);
  });
});
