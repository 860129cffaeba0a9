import { describe, expect, it } from "vitest";
import { Random, SimProcess, World } from "./schedule/world.test.kit.js";
import { SESSION_GRANTS_MAX, SessionGrants } from "./session-grants.js";
import { SessionWork } from "./session-work.js";
import { createTimerWheel } from "./timer-wheel.js";

function work() {
  const world = new World(new Random(1));
  const timers = createTimerWheel(new SimProcess(world, "broker").clock, (error) => {
    throw error;
  });
  return { world, work: new SessionWork(timers) };
}

/** A job that ends when it is told to. */
function job(done: string[], name: string) {
  let end: () => void = () => undefined;
  const ended = new Promise<void>((resolve) => {
    end = resolve;
  });
  const run = async (): Promise<void> => {
    done.push(`${name} begins`);
    await ended;
    done.push(`${name} ends`);
  };
  return { run, end };
}

describe("the work of a session", () => {
  it("is done in the order of the frames for one grant, and beside it for others", async () => {
    const { world, work: own } = work();
    const done: string[] = [];
    const [first, second, other] = [job(done, "first"), job(done, "second"), job(done, "other")];
    own.inOrder("g1", 0, first.run);
    own.inOrder("g1", 0, second.run);
    own.inOrder("g2", 0, other.run);
    expect(done).toEqual(["first begins", "other begins"]);
    expect([own.depth("g1"), own.depth("g2"), own.size]).toEqual([2, 1, 3]);
    other.end();
    await world.run(1, () => false);
    expect(done).toEqual(["first begins", "other begins", "other ends"]);
    first.end();
    await world.run(2, () => false);
    expect(done.slice(3)).toEqual(["first ends", "second begins"]);
    second.end();
    await world.run(3, () => false);
    expect([own.depth("g1"), own.size]).toEqual([0, 0]);
    own.inOrder("g1", 0, async () => void done.push("third"));
    expect(done.at(-1)).toBe("third");
  });

  it("makes the next frame wait when too many, or too large ones, are under way, and lets it in when one is over", async () => {
    for (const [count, characters] of [
      [4_096, 0],
      [32, 1_048_576],
    ] as const) {
      const { world, work: own } = work();
      const first = job([], "first");
      own.inOrder("g", characters, first.run);
      for (let index = 1; index < count; index += 1) {
        expect(own.crowded).toBe(false);
        own.inOrder(`g${index}`, characters, () => new Promise(() => undefined));
      }
      expect(own.crowded).toBe(true);
      let room = false;
      own.room().then(
        () => {
          room = true;
        },
        () => undefined,
      );
      await world.run(1, () => false);
      expect(room).toBe(false);
      first.end();
      await world.run(2, () => false);
      expect([room, own.crowded]).toEqual([true, false]);
    }
  });

  it("wakes whatever pauses or waits for room when the session ends", async () => {
    const { world, work: own } = work();
    const woken: string[] = [];
    for (let index = 0; index < 4_096; index += 1) {
      own.beside(() => new Promise(() => undefined));
    }
    own.pause(60_000).then(
      () => woken.push("pause"),
      () => undefined,
    );
    own.room().then(
      () => woken.push("room"),
      () => undefined,
    );
    await world.run(100, () => false);
    expect(woken).toEqual([]);
    own.end();
    await world.run(101, () => false);
    expect(woken.sort()).toEqual(["pause", "room"]);
    await own.pause(60_000);
    await own.room();
  });

  it("pauses for as long as it was told", async () => {
    const { world, work: own } = work();
    let over = false;
    own.pause(500).then(
      () => {
        over = true;
      },
      () => undefined,
    );
    await world.run(490, () => false);
    expect(over).toBe(false);
    await world.run(550, () => false);
    expect(over).toBe(true);
  });
});

describe("the grants of a session", () => {
  const grant = (grantId: string) => ({ callId: "c", grantId, fence: 1, driver: undefined, listedFromPing: 1 });

  it("take up a slot each until they finish or are forgotten, once", () => {
    const forgotten: string[] = [];
    const grants = new SessionGrants((grantId) => forgotten.push(grantId));
    grants.add(grant("a"));
    grants.add(grant("b"));
    grants.add(grant("b"));
    expect([grants.size, grants.unfinished]).toEqual([2, 2]);
    grants.finish("a");
    grants.finish("a");
    grants.finish("unknown");
    expect([grants.size, grants.unfinished]).toEqual([2, 1]);
    expect(grants.delete("a")).toBe(true);
    expect(grants.delete("a")).toBe(false);
    grants.delete("b");
    expect([grants.size, grants.unfinished]).toEqual([0, 0]);
    expect(forgotten).toContain("b");
  });

  it("are bounded in number", () => {
    const grants = new SessionGrants(() => undefined);
    for (let index = 0; index < SESSION_GRANTS_MAX; index += 1) {
      expect(grants.full).toBe(false);
      grants.add(grant(`g${index}`));
    }
    expect(grants.full).toBe(true);
  });
});
