/** The part of the bus's suite that is about shared records. */
import { describe, expect, it } from "vitest";
import { BUS_MESSAGE_BYTES_MAX, type Bus, type RegistryChange } from "../../domain/ports/bus.js";
import { eventually } from "./eventually.js";

export function describeRegistry(world: () => { readonly one: Bus; readonly two: Bus }): void {
  describe("registry", () => {
    it("shows a write to every broker, and keeps registries of different names apart", async () => {
      const mine = await world().one.registry("brokers");
      const theirs = await world().two.registry("brokers");
      const sessions = await world().two.registry("sessions");
      const revision = await mine.put("broker-1.a_B", "here");
      expect(await theirs.get("broker-1.a_B")).toEqual({ key: "broker-1.a_B", value: "here", revision });
      expect(await sessions.get("broker-1.a_B")).toBeUndefined();
      expect(await theirs.list()).toEqual([{ key: "broker-1.a_B", value: "here", revision }]);
      expect(await sessions.list()).toEqual([]);
    });

    it("B2: revisions rise with every write and are never reused, deletion and re-creation included", async () => {
      const registry = await world().one.registry("sessions");
      const revisions: number[] = [];
      for (let round = 0; round < 3; round += 1) {
        revisions.push(await registry.put("k", `${round}`));
        revisions.push((await registry.update("k", "again", revisions.at(-1) ?? 0)) ?? 0);
        await registry.delete("k");
        expect(await registry.get("k")).toBeUndefined();
        expect(await registry.update("k", "stale", revisions.at(-1) ?? 0)).toBeUndefined();
        revisions.push((await registry.update("k", "new", 0)) ?? 0);
        await registry.delete("k");
        await registry.delete("k");
      }
      expect(revisions).toEqual([...revisions].sort((left, right) => left - right));
      expect(new Set(revisions).size).toBe(revisions.length);
      expect(revisions[0]).toBeGreaterThan(0);
    });

    it("updates only at the expected revision, and writes nothing otherwise", async () => {
      const registry = await world().one.registry("brokers");
      const first = await registry.update("k", "1", 0);
      expect(first).toBeGreaterThan(0);
      expect(await registry.update("k", "x", 0)).toBeUndefined();
      expect(await registry.update("k", "x", (first ?? 0) + 1)).toBeUndefined();
      const second = await registry.update("k", "2", first ?? 0);
      expect(second).toBeGreaterThan(first ?? 0);
      expect(await registry.update("k", "x", first ?? 0)).toBeUndefined();
      expect(await registry.update("absent", "x", first ?? 0)).toBeUndefined();
      expect(await registry.get("k")).toEqual({ key: "k", value: "2", revision: second });
    });

    it("B2: deletes at an expected revision only while the record has it, and tells nobody otherwise", async () => {
      const registry = await world().one.registry("sessions");
      const theirs = await world().two.registry("sessions");
      const changes: string[] = [];
      await theirs.watch((change) => changes.push(change.kind));
      const first = await registry.put("k", "1");
      const second = await theirs.put("k", "2");
      await registry.delete("k", first);
      await registry.delete("k", second + 1);
      await registry.delete("absent", first);
      expect(await theirs.get("k")).toEqual({ key: "k", value: "2", revision: second });
      await registry.delete("k", second);
      expect(await theirs.get("k")).toBeUndefined();
      const third = await registry.put("k", "3");
      await registry.delete("k", second);
      expect((await theirs.get("k"))?.revision).toBe(third);
      await eventually("the changes", () => changes.length >= 4);
      expect(changes).toEqual(["put", "put", "delete", "put"]);
    });

    it("B2: never deletes what was written at the same time by another", async () => {
      const registry = await world().one.registry("sessions");
      const theirs = await world().two.registry("sessions");
      for (let round = 0; round < 20; round += 1) {
        const old = await registry.put(`r${round}`, "old");
        const [written] = await Promise.all([theirs.put(`r${round}`, "new"), registry.delete(`r${round}`, old)]);
        expect(await registry.get(`r${round}`)).toEqual({ key: `r${round}`, value: "new", revision: written });
      }
    });

    it("has one winner when twelve writers race from the same revision", async () => {
      const registries = await Promise.all([world().one, world().two].map((bus) => bus.registry("brokers")));
      let revision = 0;
      for (let round = 0; round < 20; round += 1) {
        const outcomes = await Promise.all(
          Array.from({ length: 12 }, (_, writer) => registries[writer % 2]?.update("raced", `${round}/${writer}`, revision)),
        );
        const winners = outcomes.flatMap((outcome, writer) => (outcome === undefined ? [] : [{ outcome, writer }]));
        expect(winners).toHaveLength(1);
        revision = winners[0]?.outcome ?? 0;
        expect((await registries[0]?.get("raced"))?.value).toBe(`${round}/${winners[0]?.writer}`);
      }
    });

    it("B1: tells a watcher what is there before it returns, then each change once and in order, own ones too", async () => {
      const mine = await world().one.registry("brokers");
      const theirs = await world().two.registry("brokers");
      await mine.put("a", "1");
      await mine.put("gone", "1");
      await mine.delete("gone");
      await theirs.put("b", "1");
      const changes: RegistryChange[] = [];
      await mine.watch((change) => changes.push(change));
      expect(changes.map((change) => change.kind === "put" && `${change.record.key}=${change.record.value}`)).toEqual(["a=1", "b=1"]);
      await theirs.put("a", "2");
      await mine.put("c", "1");
      await theirs.delete("b");
      // Each key has its newest record only: a deletion that nobody saw yet would be replaced by what comes after it.
      await eventually("the deletion", () => changes.some(({ kind }) => kind === "delete"));
      await theirs.put("b", "3");
      await eventually("four changes", () => changes.length >= 6);
      expect(
        changes.slice(2).map((change) => (change.kind === "put" ? `${change.record.key}=${change.record.value}` : `-${change.key}`)),
      ).toEqual(["a=2", "c=1", "-b", "b=3"]);
      const revisions = changes.map((change) => (change.kind === "put" ? change.record.revision : change.revision));
      expect(revisions).toEqual([...revisions].sort((left, right) => left - right));
      expect(new Set(revisions).size).toBe(revisions.length);
    });

    it("B1: brings every watcher to the newest state of every key under many writers", async () => {
      const mine = await world().one.registry("sessions");
      const theirs = await world().two.registry("sessions");
      const views = await Promise.all(
        [mine, theirs].map(async (registry) => {
          const view = new Map<string, { value: string; revision: number }>();
          await registry.watch((change) => {
            if (change.kind === "put") view.set(change.record.key, change.record);
            else view.delete(change.key);
          });
          return view;
        }),
      );
      await Promise.all(
        Array.from({ length: 300 }, async (_, index) => {
          const registry = index % 2 === 0 ? mine : theirs;
          if (index % 7 === 3) await registry.delete(`k${index % 10}`);
          else await registry.put(`k${index % 10}`, `${index}`);
        }),
      );
      const truth = new Map((await mine.list()).map((record) => [record.key, record]));
      await eventually("both views to agree with the registry", () =>
        views.every((view) => view.size === truth.size && [...truth].every(([key, record]) => view.get(key)?.revision === record.revision)),
      );
    });

    it("starts a watch between the writes of others without missing the newest state", async () => {
      const mine = await world().one.registry("sessions");
      const theirs = await world().two.registry("sessions");
      const writes = Promise.all(Array.from({ length: 200 }, (_, index) => theirs.put(`k${index % 5}`, `${index}`)));
      const view = new Map<string, number>();
      await mine.watch((change) => {
        if (change.kind === "put") view.set(change.record.key, change.record.revision);
      });
      await writes;
      const truth = await mine.list();
      await eventually("the view to be current", () => truth.every((record) => view.get(record.key) === record.revision));
      expect(truth).toHaveLength(5);
    });

    it("stops telling a watcher that ended", async () => {
      const registry = await world().one.registry("brokers");
      const heard: string[] = [];
      const kept: string[] = [];
      const watch = await registry.watch((change) => heard.push(change.kind));
      await registry.watch((change) => kept.push(change.kind));
      watch.unsubscribe();
      watch.unsubscribe();
      await registry.put("k", "v");
      await eventually("the other watcher", () => kept.length === 1);
      expect(heard).toEqual([]);
    });

    it.each(["", ".", "a.", ".a", "a..b", "a b", "a/b", "*", "a.>", "ü"])("refuses the key %j", async (key) => {
      const registry = await world().one.registry("brokers");
      await expect(registry.put(key, "")).rejects.toThrow(TypeError);
      await expect(registry.get(key)).rejects.toThrow(TypeError);
      await expect(registry.delete(key)).rejects.toThrow(TypeError);
      await expect(registry.update(key, "", 0)).rejects.toThrow(TypeError);
    });

    it("keeps values of every kind up to the limit, and refuses more with too_large", async () => {
      const registry = await world().one.registry("brokers");
      const large = "x".repeat(BUS_MESSAGE_BYTES_MAX);
      for (const value of ["", "\u0000 ü € 😀", large]) {
        await registry.put("k", value);
        expect((await registry.get("k"))?.value === value).toBe(true);
      }
      await expect(registry.put("k", `${large}x`)).rejects.toMatchObject({ code: "too_large" });
      await expect(registry.update("k", `${large}x`, 0)).rejects.toMatchObject({ code: "too_large" });
      expect((await registry.get("k"))?.value === large).toBe(true);
    });

    it("refuses a registry name that a bucket could not have", async () => {
      for (const name of ["", "A", "a.b", "a b", "x".repeat(65)]) await expect(world().one.registry(name)).rejects.toThrow(TypeError);
    });
  });
}
