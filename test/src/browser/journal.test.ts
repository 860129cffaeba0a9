/** The journal of pages, in a real browser: the suite of all journals, and what only a database of a browser can do. */
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { titled, WITHOUT_CHROMIUM } from "./chromium.test.kit.js";
import { type SdkStage, startSdkStage } from "./sdk-page.test.kit.js";

let stage: SdkStage;
beforeAll(async () => {
  if (WITHOUT_CHROMIUM === "") stage = await startSdkStage();
}, 60_000);
afterAll(() => stage?.close(), 30_000);

/** Runs in the page with helpers at hand; `open(name)` opens a journal, whose log is in `events`. */
async function inPage<T>(page: Page, code: string): Promise<T> {
  const answer: unknown = await page.evaluate(`(async () => {
    const events = globalThis.events ??= [];
    const at = (level) => (event, fields) => events.push({ level, event, ...fields });
    const log = { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") };
    const open = (name = "", owner = {}) => sdk.indexedDbJournal(name).open({ clock: sdk.systemClock, log,
      owner: { broker: "ws://b", binding: "page", subject: "user_1", runnerId: "tab_x", ...owner } });
    // Not to be compressed: a database counts what it writes.
    const text = (size) => JSON.stringify(Array.from({ length: size / 8 }, () => Math.random().toString(36).slice(2, 10)).join(""));
    const finished = (id, size = 8) => ({ kind: "finished", at: Date.now(), receipt: { callId: "call_" + id, grantId: id, fence: 1, attempt: 1, digest: "d",
      startedAtUnixMs: 1, finishedAtUnixMs: 2, outcome: { kind: "succeeded", resultJson: text(size) } } });
    const started = (id) => ({ kind: "started", grantId: id, at: Date.now() });
    const granted = (id) => ({ kind: "granted", callId: "call_" + id, grantId: id, fence: 1, attempt: 1, tool: "t", version: "1", at: Date.now() });
    const ids = (journal) => [...journal.view.unacknowledged()].map((entry) => entry.grantId + " " + entry.phase);
    const databases = async () => (await indexedDB.databases()).map(({ name }) => name).filter((name) => name.startsWith("toolrunner journal"));
    const nameOf = async (part) => (await databases()).find((name) => name.includes(part));
    const done = (request) => new Promise((resolve, reject) => { request.onsuccess = () => resolve(request.result); request.onerror = () => reject(request.error); });
    const until = async (check) => { for (const end = Date.now() + 8000; ; await new Promise((go) => setTimeout(go, 10))) { const found = await check(); if (found) return found; if (Date.now() > end) throw new Error("not in time: " + check + " " + JSON.stringify(events)); } };
    ${code}
  })()`);
  return answer as T;
}

describe.skipIf(WITHOUT_CHROMIUM !== "")(titled("the journal in IndexedDB"), { timeout: 60_000 }, () => {
  let page: Page;
  beforeAll(async () => {
    if (WITHOUT_CHROMIUM === "") page = await stage.page();
  });

  it("does what every journal does: the suite (R2, J1, J2, J3)", async () => {
    const outcomes = await inPage<readonly { readonly title: string; readonly fault: string }[]>(
      page,
      `const outcomes = [];
      for (const [index, { title, run }] of sdk.JOURNAL_SCENARIOS.entries()) {
        const journal = sdk.indexedDbJournal("suite" + index);
        const fault = await run({ open: (clock) => journal.open({ clock }) }).then(() => "", String);
        outcomes.push({ title, fault });
      }
      return outcomes;`,
    );
    expect(outcomes.length).toBeGreaterThan(5);
    expect(outcomes.filter(({ fault }) => fault !== "")).toEqual([]);
  });

  it("would be found out by the suite if it lost something", async () => {
    const faults = await inPage<readonly string[]>(
      page,
      `const outcomes = [];
      for (const { run } of sdk.JOURNAL_SCENARIOS) {
        // One that forgets between openings.
        outcomes.push(await run({ open: (clock) => sdk.memoryJournal().open({ clock }) }).then(() => "", String));
      }
      return outcomes;`,
    );
    expect(faults.filter((fault) => fault !== "").length).toBeGreaterThan(4);
  });

  it("is one for each tab, broker, binding and subject, found again after a reload, and a duplicated tab's is another (R2, R5, I8)", async () => {
    const own = await stage.page();
    const first = await inPage<string>(
      own,
      `globalThis.journal = await open("tabs"); await journal.append(finished("a")); return journal.journalId;`,
    );
    const others = await inPage<readonly string[]>(
      own,
      `const others = await Promise.all([open("tabs", { subject: "user_2" }), open("tabs", { binding: "b" }), open("tabs", { broker: "ws://c" }), open("tabs"), open("tabs2")]);
      return others.map(({ journalId, view }) => journalId + " " + [...view.unacknowledged()].length);`,
    );
    expect(new Set([first, ...others.map((other) => other.split(" ")[0])]).size).toBe(6);
    expect(others.every((other) => other.endsWith(" 0"))).toBe(true);
    const opened = stage.browser.context.waitForEvent("page");
    await own.evaluate("void window.open(location.href)");
    const copy = await opened;
    await copy.waitForLoadState();
    const copied = await inPage<string>(
      copy,
      `globalThis.journal = await open("tabs"); return journal.journalId + " " + ids(journal).length;`,
    );
    expect(copied.endsWith(" 0")).toBe(true);
    expect(copied.startsWith(first)).toBe(false);
    await own.reload();
    expect(await inPage(own, `const journal = await open("tabs"); return [journal.journalId, ...ids(journal)];`)).toEqual([
      first,
      "a finished",
    ]);
    await Promise.all([own.close(), copy.close()]);
  });

  it("holds what was written when its renderer crashes, though nothing was closed (R2, I7)", async () => {
    const own = await stage.page();
    const id = await inPage<string>(
      own,
      `globalThis.journal = await open("crash"); await journal.append(started("x")); await journal.append(finished("a", 300_000)); return journal.journalId;`,
    );
    const client = await stage.browser.context.newCDPSession(own);
    void client.send("Page.crash").catch(() => undefined);
    await own.waitForEvent("crash");
    const next = await stage.page();
    const found = await inPage<readonly (readonly string[])[]>(
      next,
      `const found = []; for (const name of (await databases()).filter((name) => name.includes('"crash"'))) {
        const store = await done(indexedDB.open(name)); const all = store.transaction(["meta", "records"]);
        found.push([(await done(all.objectStore("meta").get("journal"))).journalId, String((await done(all.objectStore("records").getAll())).length)]); store.close(); }
      return found;`,
    );
    expect(found).toEqual([[id, "2"]]);
    await next.close();
  });

  it("tells of a database that was deleted under it, stops, writes it anew from what it knows, and goes on (R2)", async () => {
    const outcome = await inPage<Readonly<Record<string, unknown>>>(
      page,
      `const journal = await open("deleted"); const faults = []; journal.watch((fault) => faults.push(fault));
      await journal.append(granted("a")); await journal.append(started("a")); journal.note(granted("n"));
      await done(indexedDB.deleteDatabase(await nameOf('"deleted"')));
      await until(() => faults.at(-1) === null);
      await journal.append(finished("b"));
      const { journalId } = journal; await journal.close();
      const again = await open("deleted"); const seen = ids(again); await again.close();
      return { faults: faults.map((fault) => fault === null ? null : /deleted or upgraded/.test(fault)), seen, sameId: again.journalId === journalId };`,
    );
    expect(outcome).toEqual({ faults: [true, null], seen: ["a started", "n granted", "b finished"], sameId: true });
  });

  it("says that it cannot be written while its database is in the way, and rejects what is appended then (R2)", async () => {
    const outcome = await inPage<Readonly<Record<string, unknown>>>(
      page,
      `const journal = await open("upgraded"); const faults = []; journal.watch((fault) => faults.push(fault));
      await journal.append(finished("a"));
      const name = await nameOf('"upgraded"');
      const newer = await done(indexedDB.open(name, 7));
      await until(() => faults.length > 1);
      const refusal = await journal.append(finished("b")).then(() => "", (error) => error.code);
      const last = faults.at(-1); newer.close(); await journal.close();
      const other = await open("upgraded"); const seen = ids(other);
      return { refusal, says: typeof last, seen, warned: events.some(({ event }) => event === "journal_of_newer_sdk"), left: (await databases()).includes(name) };`,
    );
    expect(outcome).toEqual({ refusal: "journal_unwritable", says: "string", seen: [], warned: true, left: true });
  });

  it("reads past records that cannot be read, says so, and takes another id: what they said of starts is not to be relied on (G1)", async () => {
    const outcome = await inPage<Readonly<Record<string, unknown>>>(
      page,
      `const journal = await open("damaged"); await journal.append(finished("a")); await journal.append(started("b")); await journal.append(finished("c")); await journal.close();
      const store = await done(indexedDB.open(await nameOf('"damaged"')));
      const records = store.transaction("records", "readwrite").objectStore("records");
      const [, second] = await done(records.getAllKeys());
      for (const [key, value] of [[second, { kind: "started" }], [900, null], [901, "text"], [902, { kind: "entry", entry: {} }]]) await done(records.put(value, key));
      store.close();
      const again = await open("damaged"); const seen = ids(again); const otherId = again.journalId !== journal.journalId; await again.append(finished("d")); await again.close();
      const third = await open("damaged"); const kept = third.journalId === again.journalId; const last = ids(third); await third.close();
      return { seen, otherId, last, kept, told: events.filter(({ event }) => event === "journal_damaged").map(({ unreadable }) => unreadable) };`,
    );
    expect(outcome).toEqual({
      seen: ["a finished", "c finished"],
      otherId: true,
      last: ["a finished", "c finished", "d finished"],
      kept: true,
      told: [4],
    });
  });

  it("refuses what there is no room for, keeps the rest, and takes more when there is room again (R2, I7)", async () => {
    // Another origin than the other tests', of whose room the browser has no memory yet.
    const origin = stage.origin.replace("127.0.0.1", "localhost");
    const own = await stage.browser.newTab();
    await own.goto(`${origin}/`);
    const client = await stage.browser.context.newCDPSession(own);
    await client.send("Storage.overrideQuotaForOrigin", { origin, quotaSize: 3_000_000 });
    const outcome = await inPage<readonly string[]>(
      own,
      `globalThis.journal = await open("full"); await journal.append(finished("a")); journal.note(granted("n"));
      return [await journal.append(finished("b", 4_000_000)).then(() => "", (error) => error.code + " " + /full/.test(error.message)), ...ids(journal)];`,
    );
    expect(outcome).toEqual(["journal_unwritable true", "a finished", "n granted"]);
    await client.send("Storage.overrideQuotaForOrigin", { origin });
    const seen = await inPage(
      own,
      `await journal.append(finished("b", 4_000_000)); await journal.close(); const again = await open("full"); const seen = ids(again); await again.close(); return seen;`,
    );
    expect(seen).toEqual(["a finished", "n granted", "b finished"]);
    await own.close();
  });

  it("writes nothing more once its lock was stolen, and says so (G2)", async () => {
    const outcome = await inPage<Readonly<Record<string, unknown>>>(
      page,
      `const journal = await open("stolen"); const faults = []; journal.watch((fault) => faults.push(fault)); await journal.append(finished("a"));
      let free; void navigator.locks.request(await nameOf('"stolen"'), { steal: true }, () => new Promise((go) => { free = go; }));
      await until(() => faults.length > 0);
      const refusal = await journal.append(finished("b")).then(() => "", (error) => error.code);
      await journal.close(); free();
      return { refusal, says: /took this journal/.test(faults.at(-1)) };`,
    );
    expect(outcome).toEqual({ refusal: "journal_unwritable", says: true });
  });

  it("is in memory where there are no locks or no database, says why, and asks the browser to keep what it stored elsewhere (R2)", async () => {
    const own = await stage.page();
    const without = async (what: string) =>
      inPage<readonly string[]>(
        own,
        `${what}
        const journal = await open("none"); await journal.append(finished("a"));
        return [journal.weakness ?? "", ...ids(journal)];`,
      );
    expect(
      await inPage(
        own,
        `const journal = await open("asked"); await until(() => events.some(({ event }) => event === "storage_not_persistent")); return journal.weakness ?? null;`,
      ),
    ).toBeNull();
    expect(await without('Object.defineProperty(navigator, "locks", { value: undefined, configurable: true });')).toEqual([
      expect.stringContaining("not secure"),
      "a finished",
    ]);
    await own.reload();
    expect(await without('Object.defineProperty(globalThis, "indexedDB", { value: undefined, configurable: true });')).toEqual([
      expect.stringContaining("no IndexedDB"),
      "a finished",
    ]);
    await own.reload();
    expect(await without('IDBFactory.prototype.open = () => { throw new DOMException("no", "SecurityError"); };')).toEqual([
      expect.stringContaining("SecurityError"),
      "a finished",
    ]);
    await own.close();
  });

  it("rejects the start where its database cannot be written at all, and leaves no lock behind (R2)", async () => {
    const own = await stage.page();
    const outcome = await inPage(
      own,
      `const real = IDBFactory.prototype.open;
      IDBFactory.prototype.open = () => { throw new DOMException("no", "QuotaExceededError"); };
      const code = await open("refused").then(() => "", (error) => error.code + " " + error.name);
      IDBFactory.prototype.open = real;
      await until(async () => !(await navigator.locks.query()).held.some(({ name }) => name.includes('"refused"')));
      return code;`,
    );
    expect(outcome).toBe("journal_unwritable JournalError");
    await own.close();
  });
});
