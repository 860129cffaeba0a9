/** What a runner of each place says of it: pages, workers with and without their page's help, a service worker. */
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { type BrokerFrame, createWebSocketChannel, type FrameChannel, type RunnerFrame, Visibility } from "@toolrunner/proto";
import { build } from "vite";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { WebSocketServer } from "ws";
import { eventually } from "../kit/eventually.js";
import { type Browser, startBrowser, titled, WITHOUT_CHROMIUM } from "./chromium.test.kit.js";

/** One module that has both entries. */
const BOTH = "virtual:both-entries";

/** What a runner said in one session. */
interface Said {
  readonly upgrade: string;
  readonly authorization: string | undefined;
  readonly frames: RunnerFrame["frame"][];
  readonly closed: { code: number; reason: string }[];
}

let browser: Browser;
let server: Server;
let sessions: Said[] = [];
let origin: string;
let ws: string;

/** Speaks just enough of the protocol: welcomes everybody. */
function greet(channel: FrameChannel<RunnerFrame, BrokerFrame>, said: Said): void {
  void (async () => {
    for await (const { frame } of channel) {
      said.frames.push(frame);
      if (frame?.$case !== "hello") continue;
      const limits = {
        frameBytes: 1_048_576,
        resultBytes: 1_048_576,
        progressBytes: 16_384,
        slots: 16,
        chunkedResultBytes: 0,
        chunkBytes: 0,
      };
      const welcome = {
        protocolVersion: 1,
        sessionEpoch: sessions.length,
        brokerId: "broker",
        pingIntervalMs: 5_000,
        leaseMs: 15_000,
        limits,
      };
      channel.send({
        frame: {
          $case: "welcome",
          value: { ...welcome, serverTimeUnixMs: 0, wantsToolDefinitions: false, renewsCredentials: false, takesCallUpdates: false },
        },
      });
    }
    said.closed.push(await channel.closed);
  })();
}

beforeAll(async () => {
  if (WITHOUT_CHROMIUM !== "") return;
  const built = await build({
    configFile: false,
    logLevel: "warn",
    build: {
      write: false,
      minify: false,
      modulePreload: false,
      rollupOptions: { input: BOTH, preserveEntrySignatures: "strict", output: { format: "iife", name: "sdk" } },
    },
    plugins: [
      {
        name: "both-entries",
        resolveId: (id) => (id === BOTH ? id : undefined),
        load: (id) => (id === BOTH ? 'export * from "@toolrunner/runner-sdk"; export * from "@toolrunner/runner-sdk/browser";' : undefined),
      },
    ],
  });
  const [output] = Array.isArray(built) ? built : [built];
  if (output === undefined || !("output" in output)) throw new Error("vite built nothing");
  const [{ code }] = output.output;
  server = createServer((request, response) => {
    const { pathname } = new URL(request.url ?? "/", "http://x");
    const isScript = pathname.endsWith(".js");
    response.setHeader("content-type", isScript ? "text/javascript" : "text/html");
    const start = `const start = (options = {}) => {
      const runner = sdk.createRunner({ transport: sdk.connectWebSocket(${JSON.stringify(ws)}), binding: "place", subject: "user_1", token: "secret-token",
        tools: [sdk.defineTool({ name: "t", description: "t", run: () => 1 })], ...options });
      runner.start(); return runner; };`;
    const scripts: Readonly<Record<string, string>> = {
      "/sdk.js": code,
      "/worker.js": `importScripts("/sdk.js"); ${start} start();`,
      "/shared.js": `importScripts("/sdk.js"); ${start} start();`,
      "/sw.js": `importScripts("/sdk.js"); ${start} let said; try { start(); said = "started"; } catch (error) { said = error.name + " " + error.code; }
        addEventListener("message", (event) => event.source.postMessage(said)); addEventListener("install", () => skipWaiting());
        addEventListener("activate", (event) => event.waitUntil(clients.claim()));`,
    };
    response.end(isScript ? scripts[pathname] : `<!doctype html><script src="/sdk.js"></script><script>${start}</script><p>page</p>`);
  });
  const sockets = new WebSocketServer({ server, path: "/v1/runner", handleProtocols: (offered) => [...offered][0] ?? false });
  sockets.on("connection", (socket, request) => {
    const said: Said = { upgrade: request.url ?? "", authorization: request.headers.authorization, frames: [], closed: [] };
    sessions.push(said);
    greet(createWebSocketChannel(socket, { side: "broker", encoding: "binary" }), said);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  ws = origin.replace("http", "ws");
  browser = await startBrowser();
}, 60_000);
afterAll(async () => {
  await browser?.close();
  server?.closeAllConnections();
  await new Promise((resolve) => (server === undefined ? resolve(undefined) : server.close(resolve)));
});

async function openPage() {
  sessions = [];
  const page = await browser.newTab();
  await page.goto(`${origin}/`);
  return page;
}

const nextSession = (index = 0) =>
  eventually(`session ${index}`, () => {
    const said = sessions[index];
    return said?.frames[0]?.$case === "hello" ? { said, hello: said.frames[0].value } : undefined;
  });

const statesOf = ({ frames }: Said) =>
  frames.flatMap((frame) => (frame?.$case === "instanceState" ? [`${Visibility[frame.value.visibility]} ${frame.value.focused}`] : []));

describe.skipIf(WITHOUT_CHROMIUM !== "")(titled("places in a browser"), { timeout: 60_000 }, () => {
  it("a page says in its hello whether it is seen, then each change once, and its credential nowhere else (R1, R5, X4)", async () => {
    const page = await openPage();
    await browser.front(page);
    await page.evaluate("void start()");
    const { said, hello } = await nextSession();
    expect(hello).toMatchObject({ credential: "secret-token", instanceState: { visibility: Visibility.VISIBLE, focused: true } });
    expect(hello.runnerId).toMatch(/^tab_/);
    expect(said).toMatchObject({ upgrade: "/v1/runner", authorization: undefined });
    const cover = await browser.newTab();
    await browser.front(cover);
    await eventually("hidden", () => statesOf(said).at(-1) === "HIDDEN false");
    await browser.front(page);
    await eventually("visible", () => statesOf(said).at(-1) === "VISIBLE true");
    const states = statesOf(said);
    expect(states.filter((state, index) => state === states[index - 1])).toEqual([]);
    await cover.close();
    await page.close();
    await eventually("the close", () => said.closed.length === 1);
  });

  it("a page that began hidden says so, and two runners of one page on one binding have ids of their own (R5)", async () => {
    const page = await openPage();
    const cover = await browser.newTab();
    await browser.front(cover);
    await page.evaluate("void [start(), start()]");
    const [one, two] = [await nextSession(0), await nextSession(1)];
    expect(one.hello).toMatchObject({ instanceState: { visibility: Visibility.HIDDEN, focused: false } });
    expect(one.hello.runnerId).not.toBe(two.hello.runnerId);
    const ids = [one.hello.runnerId, two.hello.runnerId].sort();
    sessions = [];
    await page.reload();
    await page.evaluate("void [start(), start()]");
    expect([(await nextSession(0)).hello.runnerId, (await nextSession(1)).hello.runnerId].sort()).toEqual(ids);
    await cover.close();
    await page.close();
  });

  it("without locks, as where a page did not come over https, a duplicated tab still takes an id of its own (R5)", async () => {
    const page = await openPage();
    const withoutLocks = 'Object.defineProperty(navigator, "locks", { value: undefined });';
    await page.evaluate(`${withoutLocks} void start()`);
    const first = (await nextSession(0)).hello.runnerId;
    const opened = browser.context.waitForEvent("page");
    await page.evaluate("void window.open(location.href)");
    const copy = await opened;
    await copy.waitForLoadState();
    await copy.evaluate(`${withoutLocks} void start()`);
    const second = (await nextSession(1)).hello.runnerId;
    expect(second).toMatch(/^tab_/);
    expect(second).not.toBe(first);
    sessions = [];
    await page.reload();
    await page.evaluate(`${withoutLocks} void start()`);
    expect((await nextSession(0)).hello.runnerId).toBe(first);
    await copy.close();
    await page.close();
  });

  it("a worker's visibility is unknown, until its page forwards what it is (R1)", async () => {
    const page = await openPage();
    await browser.front(page);
    await page.evaluate('globalThis.worker = new Worker("/worker.js")');
    const { said, hello } = await nextSession();
    expect(hello).toMatchObject({ credential: "secret-token", instanceState: { visibility: Visibility.UNKNOWN, focused: false } });
    await page.evaluate("globalThis.stopForwarding = sdk.forwardPageState(worker)");
    await eventually("what the page is", () => statesOf(said).at(-1) === "VISIBLE true");
    const cover = await browser.newTab();
    await browser.front(cover);
    await eventually("hidden", () => statesOf(said).at(-1) === "HIDDEN false");
    await page.evaluate("stopForwarding()");
    await browser.front(page);
    // Messages of another form are the product's own.
    await page.evaluate('worker.postMessage({ toolrunner: "page_state", visibility: "everywhere", focused: 1 }); worker.postMessage(null)');
    // A worker that begins after its page forwards hears of it, too.
    await page.evaluate('sdk.forwardPageState(new Worker("/worker.js"))');
    const second = await nextSession(1);
    await eventually(
      "what the page is",
      () => second.hello.instanceState?.visibility === Visibility.VISIBLE || statesOf(second.said).at(-1) === "VISIBLE true",
    );
    // Between the two it may have been seen without the focus.
    expect(statesOf(said).filter((state) => state !== "VISIBLE false")).toEqual(["VISIBLE true", "HIDDEN false"]);
    await cover.close();
    await page.close();
  });

  it("a shared worker serves with visibility unknown, and a service worker is refused by an error with a code (R1)", async () => {
    const page = await openPage();
    await page.evaluate('void new SharedWorker("/shared.js")');
    expect((await nextSession()).hello.instanceState?.visibility).toBe(Visibility.UNKNOWN);
    const said = await page.evaluate(`(async () => {
      await navigator.serviceWorker.register("/sw.js");
      const { active } = await navigator.serviceWorker.ready;
      const answer = new Promise((resolve) => navigator.serviceWorker.addEventListener("message", ({ data }) => resolve(data)));
      active.postMessage("what came of it?");
      return answer;
    })()`);
    expect(said).toBe("RunnerConfigError place_unsupported");
    expect(sessions).toHaveLength(1);
    await page.evaluate("navigator.serviceWorker.getRegistrations().then((all) => Promise.all(all.map((each) => each.unregister())))");
    await page.close();
  });

  it("an address with a credential in it, or of another kind, is refused by an error that does not repeat it (R1)", async () => {
    const page = await openPage();
    const tried = await page.evaluate(`["ws://secret@127.0.0.1:1", "ws://u:secret@127.0.0.1:1", "ftp://127.0.0.1/secret", ""].map((url) => {
      try { sdk.connectWebSocket(url); return "taken"; } catch (error) { return error.name + " " + error.code + ": " + error.message; }
    })`);
    expect(tried).toEqual([
      expect.stringMatching(/^RunnerConfigError options_invalid: .*token/),
      expect.stringMatching(/^RunnerConfigError options_invalid: .*token/),
      expect.stringMatching(/^RunnerConfigError options_invalid: .*ws:/),
      expect.stringMatching(/^RunnerConfigError options_invalid: .*ws:/),
    ]);
    expect(JSON.stringify(tried)).not.toContain("secret");
    await page.close();
  });

  it("a page says in the log what a memory journal does not protect, and why it cannot connect (R1, R2)", async () => {
    const page = await openPage();
    const events = await page.evaluate(`(async () => {
      const events = [];
      const runner = start({ transport: sdk.connectWebSocket("ws://127.0.0.1:9"), journal: sdk.memoryJournal(), log: (event, fields) => events.push(event + " " + JSON.stringify(fields)) });
      await new Promise((resolve) => runner.onState((state) => state.kind === "retrying" && resolve()));
      await runner.stop();
      return events.join("\\n");
    })()`);
    expect(events).toMatch(/journal_not_durable .*lost when this process ends/);
    expect(events).toMatch(/attempt_ended .*connect-src/);
    await page.close();
  });
});
