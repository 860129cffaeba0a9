/** The page tools in a page of one's own, without a broker: for what they do to the page. */
import { createRequire } from "node:module";
import type { Page } from "playwright-core";
import { build } from "vite";
import type { Browser } from "./chromium.test.kit.js";

const ENTRY = createRequire(import.meta.url).resolve("@toolrunner/runner-browser");

/** What a tool came to: its result, or the error that it threw. */
export type ToolOutcome =
  | { readonly result: Readonly<Record<string, unknown>> }
  | {
      readonly error: {
        readonly name: string;
        readonly code: string;
        readonly message: string;
        readonly details: readonly { readonly actual: string; readonly expected: string }[];
      };
    };

/** A page with the tools. */
export interface ToolPage {
  readonly page: Page;
  run(tool: string, args: object): Promise<ToolOutcome>;
  /** The result. Rejects when the tool failed. */
  result(tool: string, args: object): Promise<Readonly<Record<string, unknown>>>;
  /** The code of the error. Rejects when the tool did not fail. */
  failure(tool: string, args: object): Promise<string>;
}

interface ToolScope {
  readonly runTool: (tool: string, args: object) => Promise<ToolOutcome>;
}

let bundle: Promise<string> | undefined;

async function bundled(): Promise<string> {
  const built = await build({
    configFile: false,
    logLevel: "warn",
    build: { write: false, minify: false, lib: { entry: ENTRY, formats: ["iife"], name: "runnerBrowser" } },
  });
  const [output] = Array.isArray(built) ? built : [built];
  if (output === undefined || !("output" in output)) throw new Error("vite built nothing");
  const [{ code }] = output.output;
  return `${code}
    const pageToolsOf = (options) => new Map(runnerBrowser.pageTools(document, options).map((tool) => [tool.name, tool]));
    let tools;
    globalThis.runTool = async (name, args) => {
      tools ??= pageToolsOf();
      try {
        return { result: JSON.parse(JSON.stringify(await tools.get(name).run(args, { signal: AbortSignal.timeout(10000) }))) };
      } catch (error) {
        return { error: { name: error.name, code: error.code ?? "", message: String(error.message), details: error.details ?? [] } };
      }
    };`;
}

/** Opens a page with this body; the tools are loaded before the page's own scripts run. */
export async function openToolPage(browser: Browser, body: string): Promise<ToolPage> {
  bundle ??= bundled();
  const page = await browser.newTab();
  await page.addInitScript(await bundle);
  const address = "http://tools.test/page?token=secret#top";
  await page.route("http://tools.test/**", (route) =>
    route.fulfill({ contentType: "text/html", body: `<!doctype html><title>A page</title><body>${body}` }),
  );
  await page.goto(address);
  const run: ToolPage["run"] = (tool, args) =>
    page.evaluate(([name, given]) => (globalThis as unknown as ToolScope).runTool(name, given), [tool, args] as const);
  return {
    page,
    run,
    async result(tool, args) {
      const outcome = await run(tool, args);
      if ("error" in outcome) throw new Error(`${tool} failed: ${outcome.error.code}: ${outcome.error.message}`);
      return outcome.result;
    },
    async failure(tool, args) {
      const outcome = await run(tool, args);
      if ("result" in outcome) throw new Error(`${tool} did not fail: ${JSON.stringify(outcome.result)}`);
      return outcome.error.name === "ToolError" ? outcome.error.code : `${outcome.error.name}: ${outcome.error.message}`;
    },
  };
}
