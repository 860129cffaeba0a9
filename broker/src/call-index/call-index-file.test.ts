import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type Database from "better-sqlite3";
import { afterEach, describe, expect, it } from "vitest";
import { openSqlite } from "../sqlite/open-sqlite.js";
import { indexFile, listed, Scene, tidy } from "./testing/index-scene.js";

afterEach(tidy);

describe("the file of the call index", () => {
  async function indexed(scene: Scene, file: string, callIds: readonly string[]): Promise<void> {
    const index = await scene.start({ file });
    let version = 0;
    for (const callId of callIds) {
      version = await scene.accept(callId);
    }
    await listed(index, {}, version);
    await index.stop();
  }

  it("is built anew when the ledger is another one", async () => {
    const file = indexFile();
    await indexed(new Scene(), file, ["call_old_1", "call_old_2", "call_old_3"]);
    const scene = new Scene();
    for (let number = 0; number < 5; number += 1) {
      await scene.accept(`call_new_${number}`);
    }
    const index = await scene.start({ file });
    expect(await listed(index, {}, 5)).toEqual([4, 3, 2, 1, 0].map((number) => `call_new_${number}`));
    expect(scene.log.lines.map(({ fields }) => fields.reason)).toEqual(["other_ledger"]);
  });

  it("tells another ledger by its entries' ids, also where calls and versions are the same", async () => {
    const file = indexFile();
    await indexed(new Scene(), file, ["call_same"]);
    const scene = new Scene();
    await scene.accept("call_same", { tool: "another" });
    const index = await scene.start({ file });
    expect(await listed(index, { tool: "another" }, 1)).toEqual(["call_same"]);
  });

  it("is built anew when the ledger is younger than the index, also when it is empty", async () => {
    const file = indexFile();
    await indexed(new Scene(), file, ["call_old_1", "call_old_2"]);
    const scene = new Scene();
    const index = await scene.start({ file });
    expect(await listed(index)).toEqual([]);
    expect(await listed(index, {}, await scene.accept("call_new"))).toEqual(["call_new"]);
  });

  it("is built anew when the ledger was put back to an earlier time and has gone another way since", async () => {
    const file = indexFile();
    const scene = new Scene();
    await indexed(scene, file, ["call_kept", "call_lost"]);
    scene.store.entries.pop();
    scene.store.entriesOfCall.delete("call_lost");
    const restored = new Scene(scene.store);
    const index = await restored.start({ file });
    const version = await restored.accept("call_lost", { tool: "again" });
    expect(version).toBe(2);
    expect(await listed(index, { tool: "again" }, version)).toEqual(["call_lost"]);
    expect(await listed(index)).toEqual(["call_lost", "call_kept"]);
  });

  it.each([
    ["no database", (file: string) => writeFileSync(file, "this is no database, but long enough to look at ".repeat(400))],
    ["a database cut in half", (file: string) => writeFileSync(file, readFileSync(file).subarray(0, readFileSync(file).length / 2))],
    ["a database of another format", (file: string) => withDatabase(file, (database) => void database.pragma("user_version = 99"))],
    ["a database that lacks a table", (file: string) => withDatabase(file, (database) => void database.exec("DROP TABLE calls"))],
    ["a database that lacks an index", (file: string) => withDatabase(file, (database) => void database.exec("DROP INDEX calls_by_state"))],
  ])("is built anew when it is %s", async (_what, damage) => {
    const file = indexFile();
    const scene = new Scene();
    await indexed(
      scene,
      file,
      Array.from({ length: 200 }, (_, number) => `call_${number}`),
    );
    damage(file);
    const index = await scene.start({ file, random: () => 0, catchUpWaitMs: 5_000 });
    await expect.poll(() => listed(index, { state: "queued" }, 200).catch(() => []), { timeout: 10_000 }).toHaveLength(200);
    expect(scene.log.lines.map(({ event }) => event)).toContain("call_index_dropped");
  });

  it("is built anew when pages of it are damaged while it is in use", async () => {
    const file = indexFile();
    const scene = new Scene();
    await indexed(
      scene,
      file,
      Array.from({ length: 2_000 }, (_, number) => `call_${number}`),
    );
    const pageBytes = withDatabase(file, (database) => Number(database.pragma("page_size", { simple: true })));
    const bytes = readFileSync(file);
    bytes.fill(0xa5, pageBytes * 8);
    writeFileSync(file, bytes);
    const index = await scene.start({ file, random: () => 0, catchUpWaitMs: 5_000 });
    await expect
      .poll(() => listed(index, { tool: "refund" }, 2_000).catch(() => []), { timeout: 15_000, interval: 200 })
      .toHaveLength(2_000);
    expect(scene.log.lines.filter(({ event }) => event === "call_index_dropped").map(({ fields }) => fields.reason)).toEqual(["broken"]);
  });

  it("is left alone and refused when it is the database of something else", async () => {
    const file = indexFile();
    withDatabase(file, (database) => void database.exec("CREATE TABLE treasure (gold INTEGER); INSERT INTO treasure VALUES (7)"));
    const scene = new Scene();
    await expect(scene.start({ file })).rejects.toMatchObject({ name: "CallIndexError", code: "foreign_file" });
    expect(withDatabase(file, (database) => database.prepare("SELECT gold FROM treasure").pluck().get())).toBe(7);
  });

  it("is put aside, not deleted, when it is no database: the wrong file may have been named", async () => {
    const file = indexFile();
    writeFileSync(file, "my diary, page one. ".repeat(100));
    await new Scene().start({ file });
    expect(readFileSync(`${file}.broken`, "utf8")).toMatch(/^my diary/);
  });

  it("is refused, not deleted, when it is a damaged database of something else", async () => {
    const file = indexFile();
    withDatabase(file, (database) => {
      database.pragma("application_id = 77");
      database.exec("CREATE TABLE treasure (gold INTEGER)");
    });
    const bytes = readFileSync(file);
    bytes.fill(0xff, 100, 200);
    writeFileSync(file, bytes);
    await expect(new Scene().start({ file })).rejects.toMatchObject({ code: "foreign_file" });
    expect(readFileSync(file).equals(bytes)).toBe(true);
  });

  it("is refused while another index holds it", async () => {
    const file = indexFile();
    const scene = new Scene();
    await scene.start({ file });
    await expect(scene.start({ file })).rejects.toMatchObject({ name: "CallIndexError", code: "in_use" });
  });

  it("is refused with a reason when its folder is not there", async () => {
    const scene = new Scene();
    await expect(scene.start({ file: join(indexFile(), "nowhere", "calls.sqlite") })).rejects.toMatchObject({
      name: "CallIndexError",
      code: "unusable",
    });
  });
});

function withDatabase<T>(file: string, use: (database: Database.Database) => T): T {
  const database = openSqlite(file);
  try {
    return use(database);
  } finally {
    database.close();
  }
}
