/**
 * Pages with the SDK and a tool or two, a broker with short figures, and a line between them that can be cut.
 *
 * Invariant: what a handler does to the world is told to this process before the handler goes on, so it is counted here whatever
 * becomes of its page.
 */
import { createServer, type IncomingMessage, type Server } from "node:http";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import { dirname, join } from "node:path";
import { type AgentClient, type Call, createAgentClient } from "@toolrunner/agent-sdk";
import { type Broker, createBroker, SCOPES } from "@toolrunner/broker";
import type { Page } from "playwright-core";
import { build } from "vite";
import { eventually } from "../kit/eventually.js";
import { startTcpProxy, type TcpProxy } from "../kit/tcp-proxy.js";
import { type Browser, type BrowserStart, startBrowser } from "./chromium.test.kit.js";

const AGENT_KEY = "test-agent-key-0123456789abcdef";
const RUNNER_KEY = "test-runner-key-0123456789abcdef";
/** A lease outlasts a redial, as it does in production. */
const FIGURES = { pingIntervalMs: 300, leaseMs: 3_000, waitingNoticeMs: 50, settledMemoryMs: 1_000 };
const SDK = dirname(createRequire(import.meta.url).resolve("@toolrunner/runner-sdk"));
const BUNDLED = "virtual:sdk";

/** What a handler did. */
export interface Effect {
  readonly call: string;
  readonly fence: number;
  readonly runner: string;
  readonly n: number;
}

/** Something that a broker, or a runner of a page, logged. */
export interface Logged {
  readonly event: string;
  readonly [field: string]: unknown;
}

/** All that a test of pages' lives needs. */
export interface SdkStage {
  readonly browser: Browser;
  readonly agent: AgentClient;
  readonly broker: Broker;
  /** Every byte between pages and broker goes through it. */
  readonly line: TcpProxy;
  /** Address of the pages, without a slash at its end. */
  readonly origin: string;
  readonly effects: readonly Effect[];
  /** What runners of pages logged, and the broker, in the order of arrival. */
  readonly logged: readonly Logged[];
  /** A new tab with the SDK in it and nothing started. */
  page(path?: string): Promise<Page>;
  /** A tab with a runner that is ready. */
  serve(options?: Readonly<Record<string, unknown>>): Promise<Page>;
  /** Starts a call of `work` (at once) or `hold` (until {@link release}). */
  start(tool: string, n: number, more?: Readonly<Record<string, unknown>>): Promise<Call>;
  /** The call, once `states` has its state. */
  settled(call: Call, withinMs?: number, states?: readonly string[]): Promise<Call>;
  /** Waits until a handler with this number began. */
  began(n: number): Promise<Effect>;
  /** Records in all journals of the page's origin: kinds, and `finished N` for results of handlers with a number. */
  recorded(page: Page): Promise<readonly string[]>;
  /** Ends the browser with SIGKILL and starts it again with the same profile. */
  restartBrowser(): Promise<void>;
  close(): Promise<void>;
}

/** What the page's own script gives to tests. */
export interface SdkScope {
  runner: {
    readonly runnerId: string;
    readonly state: { readonly kind: string; readonly fault?: { readonly code: string } | null };
    stop(): Promise<void>;
  };
  release(n: number): void;
}

/** Starts everything. */
export async function startSdkStage(start: BrowserStart & { readonly figures?: Partial<typeof FIGURES> } = {}): Promise<SdkStage> {
  const ends: (() => Promise<unknown>)[] = [];
  const close = async (): Promise<void> => {
    for (const end of ends.splice(0).reverse()) await end();
  };
  try {
    const effects: Effect[] = [];
    const logged: Logged[] = [];
    const record = (event: string, fields: object = {}) => void logged.push({ event, ...fields });
    const broker = await createBroker({
      mode: "dev",
      store: { kind: "memory" },
      http: { host: "127.0.0.1", port: 0 },
      grpc: null,
      staticKeys: [
        { kind: "agent", id: "key_test_agent", key: AGENT_KEY, application: "default", scopes: SCOPES },
        { kind: "runner", id: "key_test_runner", key: RUNNER_KEY, application: "default", binding: "*", mayNameSubject: true },
      ],
      log: { debug: record, info: record, warn: record, error: record },
      figures: { ...FIGURES, ...start.figures },
    });
    ends.push(() => broker.stop({ drainMs: 0 }));
    const line = await startTcpProxy(Number(new URL(broker.addresses.http).port));
    ends.push(() => line.close());
    const server = await servePages(`ws://127.0.0.1:${line.port}`, effects, logged);
    ends.push(() => closed(server));
    let browser = await startBrowser(start);
    ends.push(() => browser.close());
    const agent = createAgentClient({ url: broker.addresses.http, key: AGENT_KEY });
    const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const stage: SdkStage = {
      get browser() {
        return browser;
      },
      agent,
      broker,
      line,
      origin,
      effects,
      logged,
      async page(path = "/") {
        const page = await browser.newTab();
        await page.goto(`${origin}${path}`);
        return page;
      },
      async serve(options = {}) {
        const page = await stage.page(`/?serve=${encodeURIComponent(JSON.stringify(options))}`);
        await ready(page);
        return page;
      },
      start: (tool, n, more = {}) =>
        agent.start({ toolset: "page", tool, arguments: { n }, subject: "user_1", timeoutSeconds: 60, ...more } as Parameters<
          AgentClient["start"]
        >[0]),
      settled: (call, withinMs = 15_000, states = ["succeeded", "failed", "cancelled", "timed_out", "denied"]) =>
        eventually(
          `call ${call.id} to be ${states.join(" or ")}`,
          async () => {
            const now = await agent.get(call.id);
            return states.includes(now.state) ? now : undefined;
          },
          withinMs,
        ),
      began: (n) => eventually(`handler ${n}`, () => effects.find((effect) => effect.n === n)),
      recorded: (page) => page.evaluate(readJournals),
      async restartBrowser() {
        await browser.kill9();
        browser = await startBrowser(start);
      },
      close,
    };
    return stage;
  } catch (error) {
    await close();
    throw error;
  }
}

/** In the page: reads beside the runner, without a lock, as no runner may. */
async function readJournals(): Promise<readonly string[]> {
  const answer = <T>(request: IDBRequest<T>) =>
    new Promise<T>((resolve, reject) => {
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    });
  const found: string[] = [];
  for (const { name = "" } of await indexedDB.databases()) {
    if (!name.startsWith("toolrunner journal")) continue;
    const store = await answer(indexedDB.open(name));
    const records = (await answer(store.transaction("records").objectStore("records").getAll())) as readonly {
      readonly kind: string;
      readonly receipt?: { readonly outcome: { readonly resultJson?: string } };
    }[];
    store.close();
    for (const { kind, receipt } of records) {
      found.push(
        receipt?.outcome.resultJson === undefined
          ? kind
          : `${kind} ${(JSON.parse(receipt.outcome.resultJson) as { readonly n: number }).n}`,
      );
    }
  }
  return found;
}

/** Resolves with the runner's id when the page's runner is ready. */
export async function ready(page: Page): Promise<string> {
  return await eventually(
    "a ready runner",
    () =>
      page
        .evaluate(() => {
          const { runner } = globalThis as unknown as Partial<SdkScope>;
          return runner?.state.kind === "ready" ? runner.runnerId : undefined;
        })
        .catch(() => undefined),
    15_000,
  );
}

/** Lets the handler with this number end. */
export const release = (page: Page, n: number) => page.evaluate((number) => (globalThis as unknown as SdkScope).release(number), n);

/** The page's own script. With `?serve={…}` it serves as soon as it is loaded, as a product's page does. */
const script = (ws: string) => `
const tell = (path, what) => fetch(path, { method: "POST", body: JSON.stringify(what) });
const waiting = new Map();
globalThis.release = (n) => { waiting.get(n)?.(); waiting.set(n, null); };
const held = (n, signal) => waiting.get(n) === null ? undefined : new Promise((resolve) => waiting.set(n, resolve));
globalThis.serve = (options = {}) => {
  const effect = ({ n }, ctx) => tell("/effects", { call: ctx.callId, fence: ctx.fence, runner: runner.runnerId, n });
  const tools = [
    sdk.defineTool({ name: "work", description: "Work.", run: async (args, ctx) => { await effect(args, ctx); return { n: args.n }; } }),
    sdk.defineTool({ name: "hold", description: "Work until released.", run: async (args, ctx) => { await effect(args, ctx); await held(args.n); return { n: args.n, text: "x".repeat(args.size ?? 0) }; } }),
    sdk.defineTool({ name: "again", description: "Work until released; repeatable.", idempotent: true, run: async (args, ctx) => { await effect(args, ctx); await held(args.n); return { n: args.n }; } }),
  ];
  tools.push(sdk.defineTool({ name: "asked", description: "Work until released; knows afterwards whether it was done.",
    run: async (args, ctx) => { await effect(args, ctx); await held(args.n); return { n: args.n }; },
    reconcile: async (ctx) => sdk.applied({ n: ctx.arguments.n, found_by: runner.runnerId }) }));
  const log = (event, fields) => {
    // A beacon: it goes out although the page does.
    navigator.sendBeacon?.("/log", JSON.stringify({ event, runner: runner?.runnerId, ...fields }));
  };
  let runner;
  const { journal, authorizeWaits, ...rest } = options;
  runner = sdk.createRunner({ transport: sdk.connectWebSocket(${JSON.stringify(ws)}), binding: "page", subject: "user_1", token: ${JSON.stringify(RUNNER_KEY)}, tools, log,
    ...(journal === undefined ? {} : { journal: sdk.indexedDbJournal(journal) }),
    ...(authorizeWaits ? { authorize: async () => { const gate = globalThis.isLet ? undefined : new Promise((go) => { globalThis.authorized = go; }); await tell("/effects", { call: "", fence: 0, runner: runner.runnerId, n: -1 }); await gate; return sdk.allow(); } } : {}), ...rest });
  globalThis.runner = runner;
  runner.start().catch(() => undefined);
  return runner;
};
const asked = typeof location === "undefined" ? null : new URLSearchParams(location.search).get("serve");
if (asked !== null && typeof document !== "undefined") serve(JSON.parse(asked));
`;

async function servePages(ws: string, effects: Effect[], logged: Logged[]): Promise<Server> {
  const built = await build({
    configFile: false,
    logLevel: "warn",
    build: {
      write: false,
      minify: false,
      modulePreload: false,
      rollupOptions: { input: BUNDLED, preserveEntrySignatures: "strict", output: { format: "iife", name: "sdk" } },
    },
    plugins: [
      {
        name: "sdk",
        resolveId: (id) => (id === BUNDLED ? id : undefined),
        load: (id) =>
          id === BUNDLED
            ? `export * from "@toolrunner/runner-sdk"; export * from "@toolrunner/runner-sdk/browser"; export * from ${JSON.stringify(join(SDK, "journal-suite.test.kit.js"))};
               export { systemClock } from ${JSON.stringify(join(SDK, "core/clock.js"))};`
            : undefined,
      },
    ],
  });
  const [output] = Array.isArray(built) ? built : [built];
  if (output === undefined || !("output" in output)) throw new Error("vite built nothing");
  const [{ code }] = output.output;
  const server = createServer((request, response) => {
    void (async () => {
      const { pathname } = new URL(request.url ?? "/", "http://x");
      if (request.method === "POST") {
        const said: unknown = JSON.parse(await bodyOf(request));
        if (pathname === "/effects") effects.push(said as Effect);
        else logged.push(said as Logged);
        response.end();
        return;
      }
      if (pathname === "/favicon.ico") {
        response.writeHead(204).end();
        return;
      }
      const isScript = pathname.endsWith(".js");
      response.setHeader("content-type", isScript ? "text/javascript" : "text/html");
      const scripts: Readonly<Record<string, string>> = {
        "/sdk.js": code,
        "/page.js": script(ws),
        "/worker.js": `importScripts("/sdk.js", "/page.js"); addEventListener("message", ({ data }) => data.serve && serve(data.serve));`,
      };
      response.end(
        isScript
          ? scripts[pathname]
          : '<!doctype html><title>A page</title><script src="/sdk.js"></script><script src="/page.js"></script><p>page',
      );
    })().catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return server;
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  let body = "";
  request.setEncoding("utf8");
  for await (const chunk of request) body += chunk;
  return body;
}

async function closed(server: Server): Promise<void> {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
}
