/**
 * A broker, the demo page's server and a browser, each a real process, and whatever the browser complains of.
 *
 * Invariant: every complaint counts, of pages and workers: console errors and warnings, uncaught errors, policy violations as the
 * page sees them, and as the browser reports them to the server.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { type AgentClient, type Call, createAgentClient } from "@toolrunner/agent-sdk";
import type { Page } from "playwright-core";
import { type CliProcess, startCli } from "../kit/cli-process.js";
import { eventually } from "../kit/eventually.js";
import { type Browser, startBrowser } from "./chromium.test.kit.js";

const DEMO = fileURLToPath(new URL("../../../runners/browser/demo", import.meta.url));
const VITE = join(dirname(createRequire(import.meta.url).resolve("vite/package.json")), "bin", "vite.js");

/** All that a test of pages needs. */
export interface PageStage {
  readonly browser: Browser;
  readonly broker: CliProcess;
  readonly agent: AgentClient;
  /** Address of the demo's server, without a slash at its end. */
  readonly origin: string;
  /** A new tab with the page, once its runner is ready. */
  open(path: string): Promise<Page>;
  /** Calls a tool of a demo page. */
  call(tool: string, args: object, subject?: string, toolset?: string): Promise<Call>;
  /** What was complained of so far. */
  complaints(): readonly string[];
  close(): Promise<void>;
}

/** Starts everything. `serve`: what Vite does; the development server by default. */
export async function startPageStage(serve: readonly string[] = []): Promise<PageStage> {
  const folder = await mkdtemp(join(tmpdir(), "toolrunner-pages-"));
  const ends: (() => Promise<unknown>)[] = [() => rm(folder, { recursive: true, force: true })];
  const close = async (): Promise<void> => {
    for (const end of ends.reverse()) await end();
  };
  try {
    const broker = await startCli(["dev", "--port", "0", "--grpc-port", "0"], { cwd: folder });
    ends.push(() => broker.stop());
    const [server, browser] = await Promise.all([startVite(folder, serve), startBrowser()]);
    ends.push(server.stop, () => browser.close());
    const complaints = listen(browser);
    const agent = createAgentClient({ url: String(broker.ready["http"]), key: String(broker.ready["agent_key"]) });
    return {
      browser,
      broker,
      agent,
      origin: server.origin,
      async open(path) {
        const page = await browser.newTab();
        await page.goto(`${server.origin}${path}`);
        await untilReady(page);
        return page;
      },
      call: (tool, args, subject = "user_1", toolset = "demo_page") =>
        agent.call({ toolset, tool, arguments: { ...args }, subject, timeoutSeconds: 20 }),
      complaints: () => [...complaints, ...server.complaints()],
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Resolves with the runner's id once the page says that it is ready. */
export async function untilReady(page: Page): Promise<string> {
  // Looked at from here: a hidden page paints no frames that its own waiting could go by.
  return await eventually("a ready runner", async () => /^ready as (\S+)$/.exec(await statusOf(page))?.[1], 15_000).catch(async (error) => {
    throw new Error(`${error}: the page says ${JSON.stringify(await statusOf(page))}`);
  });
}

async function statusOf(page: Page): Promise<string> {
  return (await page.textContent("#runner")) ?? "";
}

function listen({ context }: Browser): readonly string[] {
  const complaints: string[] = [];
  context.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints.push(`${message.type()}: ${message.text()}`);
  });
  context.on("weberror", (error) => complaints.push(`uncaught: ${error.error().message}`));
  context.on("page", (page) => {
    page.on("crash", () => complaints.push("the page crashed"));
    void page.addInitScript(() => {
      addEventListener("securitypolicyviolation", (event) => console.error(`violation of ${event.violatedDirective}: ${event.blockedURI}`));
    });
  });
  return complaints;
}

interface ViteServer {
  readonly origin: string;
  complaints(): readonly string[];
  stop(): Promise<void>;
}

/** The demo's server as a developer starts it, in the folder where the broker was started. */
async function startVite(cwd: string, serve: readonly string[]): Promise<ViteServer> {
  const child: ChildProcess = spawn(process.execPath, [VITE, ...serve, DEMO, "--host", "127.0.0.1", "--port", "0"], {
    cwd,
    env: { ...process.env, NO_COLOR: "1", FORCE_COLOR: "0" },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding("utf8").on("data", (chunk: string) => {
      output += chunk;
    });
  }
  const exited = new Promise<void>((resolve) => child.once("close", () => resolve()));
  const stop = async (): Promise<void> => {
    child.kill("SIGTERM");
    await exited;
  };
  try {
    const origin = await eventually("the demo's server", () => /(http:\/\/127\.0\.0\.1:\d+)\//.exec(output)?.[1], 20_000);
    return { origin, stop, complaints: () => output.split("\n").filter((line) => line.includes("policy broken")) };
  } catch (error) {
    await stop();
    throw new Error(`${error}: ${output}`);
  }
}
