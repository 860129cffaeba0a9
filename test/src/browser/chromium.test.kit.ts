/**
 * A real Chromium with real tabs, driven over its debugging port.
 *
 * Invariants: pages are as a user has them, without the focus and visibility that automation lends them otherwise, so that one tab of
 * the window is in front and the others are hidden; the browser and its profile are gone after `close()`.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type BrowserContext, chromium, type Page } from "playwright-core";

const PATHS = [process.env["TOOLRUNNER_CHROMIUM"] ?? "", "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const FLAGS = [
  "--headless=new",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--disable-dev-shm-usage",
  "--disable-extensions",
  "--remote-debugging-port=0",
  "--window-size=1000,800",
];
const STARTS_WITHIN_MS = 30_000;

/** Where Chromium is; undefined when this machine has none. */
export const CHROMIUM = PATHS.find((path) => path !== "" && existsSync(path));

/** Why tests in Chromium are skipped; "" when they run. */
export const WITHOUT_CHROMIUM =
  CHROMIUM === undefined ? "there is no chromium here (apt-get install chromium, or name one in TOOLRUNNER_CHROMIUM)" : "";

/** A title of tests in Chromium: with the reason, where they are skipped. */
export function titled(title: string): string {
  return WITHOUT_CHROMIUM === "" ? title : `${title} [${WITHOUT_CHROMIUM}]`;
}

/** How a browser is started. */
export interface BrowserStart {
  /** A profile that is kept, as that of a user who starts the browser again; by default one that goes with it. */
  readonly profile?: string;
  /** Flags besides the usual ones. */
  readonly flags?: readonly string[];
}

/** A browser with one window. */
export interface Browser {
  readonly context: BrowserContext;
  /** A new tab of the window, in front. Nothing is loaded yet. */
  newTab(): Promise<Page>;
  /** Brings a tab to the front, and resolves when it says so itself. */
  front(page: Page): Promise<void>;
  /** Ends all its processes with SIGKILL; resolves when they are gone. */
  kill9(): Promise<void>;
  close(): Promise<void>;
}

/** Starts a browser, by default with a profile of its own. */
export async function startBrowser(options: BrowserStart = {}): Promise<Browser> {
  if (CHROMIUM === undefined) throw new Error(WITHOUT_CHROMIUM);
  const profile = options.profile ?? (await mkdtemp(join(tmpdir(), "toolrunner-chromium-")));
  const child = spawn(CHROMIUM, [...FLAGS, ...(options.flags ?? []), `--user-data-dir=${profile}`, "about:blank"], {
    // A group of its own: the browser is several processes.
    detached: true,
    stdio: ["ignore", "ignore", "pipe"],
  });
  const exited = new Promise<void>((resolve) => child.once("close", () => resolve()));
  const end = async (): Promise<void> => {
    endGroup(child);
    await exited;
    if (options.profile === undefined) await rm(profile, { recursive: true, force: true, maxRetries: 10 });
  };
  try {
    const browser = await chromium.connectOverCDP(await debuggingAddress(child), { noDefaults: true, isLocal: true });
    const [context] = browser.contexts();
    if (context === undefined) throw new Error("chromium has no window");
    return {
      context,
      newTab: () => context.newPage(),
      async front(page) {
        await page.bringToFront();
        await page.waitForFunction(() => document.visibilityState === "visible" && document.hasFocus());
      },
      kill9: end,
      async close() {
        await browser.close().catch(() => undefined);
        await end();
      },
    };
  } catch (error) {
    await end();
    throw error;
  }
}

function debuggingAddress(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    let said = "";
    const late = setTimeout(() => reject(new Error(`chromium did not start within ${STARTS_WITHIN_MS} ms: ${said}`)), STARTS_WITHIN_MS);
    child.stderr?.setEncoding("utf8").on("data", (chunk: string) => {
      said += chunk;
      const address = /DevTools listening on (ws:\S+)/.exec(said)?.[1];
      if (address === undefined) return;
      clearTimeout(late);
      resolve(address);
    });
    child.once("error", reject);
    child.once("close", (code) => reject(new Error(`chromium ended with ${code}: ${said}`)));
  });
}

function endGroup(child: ChildProcess): void {
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, "SIGKILL");
  } catch {
    // It is gone.
  }
}
