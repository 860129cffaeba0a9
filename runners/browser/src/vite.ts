/**
 * For Vite's development server: hands a page the way to the broker that `toolrunner dev` started.
 *
 * Invariants: only the runner's token leaves the data folder, never the agent's key, and only to pages of this server; the folder
 * itself is not served; nothing is read before a page asks, so a broker that is started again is found.
 */
import { readFile } from "node:fs/promises";
import type { IncomingMessage, ServerResponse } from "node:http";
import { resolve } from "node:path";

/** Where pages ask: `{"ws":"ws://127.0.0.1:7070/v1/runner","runner_token":"…"}`. */
export const CONNECTION_PATH = "/toolrunner.json";

/** Where browsers report what breaks the strict policy. */
export const REPORT_PATH = "/toolrunner-csp";

/** Name of the one trusted types policy that the strict policy lets a page make: for the address of its worker. */
export const WORKER_POLICY = "toolrunner-worker";

/** Options of {@link toolrunner}. */
export interface ToolrunnerPluginOptions {
  /** Data folder of `toolrunner dev`, from the folder that Vite was started in; `.toolrunner` by default. */
  readonly data?: string;
  /**
   * Sends each answer with the strict content security policy of `docs/browser.md`, and warns in the terminal of what breaks it: to
   * develop under what production will have. False by default.
   */
  readonly strict?: boolean;
}

type Handler = (request: IncomingMessage, response: ServerResponse, next: (error?: unknown) => void) => void;

interface WebServer {
  readonly config: { readonly logger: { warn(message: string): void } };
  readonly middlewares: { use(handler: Handler): unknown };
}

/** A Vite plugin, as far as Vite asks. */
export interface ToolrunnerPlugin {
  readonly name: string;
  config(): { server: { fs: { deny: string[] } } };
  configureServer(server: WebServer): void;
  configurePreviewServer(server: WebServer): void;
}

interface Connection {
  readonly ws: string;
  readonly runner_token: string;
}

/** What Vite itself refuses; a list of one's own takes its place. */
const DENIED_BY_VITE = [".env", ".env.*", "*.{crt,pem}", "**/.git/**"];
const REPORT_BYTES_MAX = 16_384;

/** The plugin, for `vite` and `vite preview`. A build holds nothing of it. */
export function toolrunner({ data = ".toolrunner", strict = false }: ToolrunnerPluginOptions = {}): ToolrunnerPlugin {
  const file = resolve(data, "dev.json");
  const serve = ({ config, middlewares }: WebServer) => {
    middlewares.use((request, response, next) => {
      const path = request.url?.split("?", 1)[0];
      if (path === CONNECTION_PATH) tellConnection(file, request, response).catch(next);
      else if (!strict) next();
      else if (path === REPORT_PATH && request.method === "POST")
        takeReport(request, response, (text) => config.logger.warn(text)).catch(next);
      else addPolicy(file, response).then(() => next(), next);
    });
  };
  return {
    name: "toolrunner",
    config: () => ({ server: { fs: { deny: [...DENIED_BY_VITE, "**/.toolrunner/**", file] } } }),
    configureServer: serve,
    configurePreviewServer: serve,
  };
}

async function tellConnection(file: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const connection = await readConnection(file);
  response.setHeader("content-type", "application/json");
  response.setHeader("cache-control", "no-store");
  // Browsers say where a request comes from; a page of another server on this machine is not told.
  const from = request.headers["sec-fetch-site"] ?? "none";
  const [status, body] =
    from !== "same-origin" && from !== "none"
      ? [403, { error: "asked by a page of another origin" }]
      : connection === undefined
        ? [503, { error: `there is no ${file}: start \`toolrunner dev\` in that folder, then load the page again` }]
        : [200, connection];
  response.statusCode = status;
  response.end(JSON.stringify(body));
}

async function addPolicy(file: string, response: ServerResponse): Promise<void> {
  response.setHeader("content-security-policy", strictPolicy((await readConnection(file))?.ws));
}

async function takeReport(request: IncomingMessage, response: ServerResponse, warn: (text: string) => void): Promise<void> {
  let text = "";
  for await (const chunk of request.setEncoding("utf8")) if (text.length < REPORT_BYTES_MAX) text += chunk;
  response.statusCode = 204;
  response.end();
  // One line, whatever the browser was made to say.
  warn(`content security policy broken: ${JSON.stringify(text.slice(0, REPORT_BYTES_MAX))}`);
}

async function readConnection(file: string): Promise<Connection | undefined> {
  try {
    const { ws, runner_token }: Connection = JSON.parse(await readFile(file, "utf8"));
    return typeof ws === "string" && typeof runner_token === "string" ? { ws, runner_token } : undefined;
  } catch {
    return undefined;
  }
}

/**
 * The policy that a page with a runner needs at least: scripts and styles of its own origin, the broker, nothing else, no code made
 * from text. `ws` is the broker's address; without one the page reaches its own origin alone.
 */
export function strictPolicy(ws?: string): string {
  // The session, and the last request of a page that closes: browsers do not take the one address for the other.
  const broker = ws === undefined ? "" : ` ${new URL(ws).origin.replace(/^ws/, "http")} ${new URL(ws).origin}`;
  return [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    `connect-src 'self'${broker}`,
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    `trusted-types ${WORKER_POLICY}`,
    `report-uri ${REPORT_PATH}`,
  ].join("; ");
}
