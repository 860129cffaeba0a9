import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { CONNECTION_PATH, REPORT_PATH, strictPolicy, toolrunner } from "./vite.js";

const DEV = { http: "http://127.0.0.1:7070", ws: "ws://127.0.0.1:7070/v1/runner", agent_key: "agent-secret", runner_token: "runner-token" };

let folder: string;
let server: Server | undefined;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "toolrunner-vite-"));
});
afterEach(async () => {
  server?.closeAllConnections();
  server?.close();
  await rm(folder, { recursive: true, force: true });
});

/** A server with the plugin alone, as Vite would have it before its own handlers. */
async function serve(strict: boolean) {
  const warned: string[] = [];
  let handler: ((request: IncomingMessage, response: ServerResponse, next: (error?: unknown) => void) => void) | undefined;
  toolrunner({ data: folder, strict }).configureServer({
    config: { logger: { warn: (message) => void warned.push(message) } },
    middlewares: {
      use(given) {
        handler = given;
      },
    },
  });
  const made = createServer((request, response) => {
    handler?.(request, response, (error) => {
      response.statusCode = error === undefined ? 200 : 500;
      response.end("vite's own");
    });
  });
  server = made;
  await new Promise<void>((resolve) => made.listen(0, "127.0.0.1", resolve));
  const origin = `http://127.0.0.1:${(made.address() as AddressInfo).port}`;
  return { warned, ask: (path: string, init: RequestInit = {}) => fetch(`${origin}${path}`, init) };
}

const writeDev = (content: unknown) => writeFile(join(folder, "dev.json"), typeof content === "string" ? content : JSON.stringify(content));

describe("the plugin for Vite", () => {
  it("tells a page of its own origin the broker's address and the runner's token, and nothing else", async () => {
    await writeDev(DEV);
    const { ask } = await serve(false);
    for (const headers of [{}, { "sec-fetch-site": "same-origin" }]) {
      const answer = await ask(`${CONNECTION_PATH}?t=1`, { headers });
      expect({ status: answer.status, cache: answer.headers.get("cache-control"), body: await answer.json() }).toEqual({
        status: 200,
        cache: "no-store",
        body: { ws: DEV.ws, runner_token: DEV.runner_token },
      });
    }
    for (const site of ["cross-site", "same-site"]) {
      const answer = await ask(CONNECTION_PATH, { headers: { "sec-fetch-site": site } });
      expect([answer.status, await answer.text()]).toEqual([403, expect.not.stringContaining('token":')]);
    }
  });

  it("finds a broker that is started later or again, and says what to do while there is none", async () => {
    const { ask } = await serve(false);
    for (const broken of [undefined, "{", {}]) {
      if (broken !== undefined) await writeDev(broken);
      const answer = await ask(CONNECTION_PATH);
      expect([answer.status, await answer.json()]).toEqual([503, { error: expect.stringContaining("toolrunner dev") }]);
    }
    for (const runner_token of ["one", "two"]) {
      await writeDev({ ...DEV, runner_token });
      expect(await (await ask(CONNECTION_PATH)).json()).toMatchObject({ runner_token });
    }
  });

  it("leaves everything else to Vite, with the strict policy where that is wanted", async () => {
    await writeDev(DEV);
    const plain = await (await serve(false)).ask("/");
    expect([await plain.text(), plain.headers.get("content-security-policy")]).toEqual(["vite's own", null]);
    const strict = await (await serve(true)).ask("/");
    expect([await strict.text(), strict.headers.get("content-security-policy")]).toEqual(["vite's own", strictPolicy(DEV.ws)]);
    expect(strictPolicy(DEV.ws)).toContain("connect-src 'self' http://127.0.0.1:7070 ws://127.0.0.1:7070;");
    expect(strictPolicy()).toContain("connect-src 'self';");
    expect(strictPolicy(DEV.ws)).not.toMatch(/unsafe|\*/);
  });

  it("sends the policy that docs/browser.md gives (R1)", async () => {
    const text = await readFile(new URL("../../../docs/browser.md", import.meta.url), "utf8");
    const told = /```text\n([\s\S]*?)```/.exec(text)?.[1]?.replace(/\s+/g, " ").trim();
    // Where the browser reports to is the development server's own.
    expect(told).toBe(strictPolicy("wss://tools.example").replace(/; report-uri .*$/, ""));
  });

  it("warns of a broken policy in one line of bounded length, whatever was reported", async () => {
    const { ask, warned } = await serve(true);
    const answer = await ask(REPORT_PATH, { method: "POST", body: `\u001b[2J\n${"x".repeat(1_000_000)}` });
    expect(answer.status).toBe(204);
    expect(warned).toHaveLength(1);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what must not get through.
    expect(warned[0]).not.toMatch(/[\u0000-\u001f]/);
    expect(warned[0]?.length).toBeLessThan(40_000);
  });

  it("keeps Vite from serving the data folder, and what Vite itself keeps back", () => {
    expect(toolrunner({ data: folder }).config().server.fs.deny).toEqual(
      expect.arrayContaining(["**/.toolrunner/**", join(folder, "dev.json"), ".env", "**/.git/**"]),
    );
  });
});
