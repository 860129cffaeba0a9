/**
 * Follows README.md from top to bottom: every fenced block is written, started or run as its label says, and what comes of it is
 * checked. A block that no rule covers fails.
 */
import { spawnSync } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Browser, startBrowser, titled, WITHOUT_CHROMIUM } from "../browser/chromium.test.kit.js";
import { eventually } from "../kit/eventually.js";
import { type NatsServer, startNatsServer } from "../kit/nats-server.js";
import { type CodeBlock, codeBlocksIn, ROOT, readDocument } from "./markdown.js";
import { arrive, expectFreePorts, type Newcomer, type Outcome } from "./newcomer.js";

/** Those that the README's commands listen on. */
const PORTS = [7070, 7071, 7080, 7081, 5173];
const ADMIN_KEY = "readme-admin-key-0123456789abcdef";

let newcomer: Newcomer;
let nats: NatsServer | undefined;
let browser: Browser | undefined;
beforeAll(async () => {
  await expectFreePorts(PORTS);
  newcomer = await arrive();
});
afterAll(async () => {
  await browser?.close();
  await newcomer?.leave();
  await nats?.dispose();
}, 60_000);

interface DevFile {
  readonly http: string;
  readonly agent_key: string;
}

async function devFile(): Promise<DevFile> {
  return JSON.parse(await readFile(join(newcomer.folder, ".toolrunner", "dev.json"), "utf8"));
}

function expectDone({ code, stdout, stderr }: Outcome): string {
  expect({ code, stderr }, stdout).toEqual({ code: 0, stderr: "" });
  return stdout;
}

/** Where the page of the README is served. */
let pageAddress = "";

/** What each command of the third terminal prints; the first rule whose text a command begins with counts. */
const COMMANDS: readonly (readonly [begins: string, check: (command: string) => Promise<void>])[] = [
  [
    "npx toolrunner call refund ",
    async (command) => {
      const stdout = expectDone(await newcomer.run(command));
      expect(stdout).toMatch(/^call_\w+ {2}shop\/refund {2}succeeded\n/);
      expect(JSON.parse(stdout.slice(stdout.indexOf("{")))).toEqual({ order: "A1", refunded: true });
    },
  ],
  ["npx toolrunner calls", async (command) => expect(expectDone(await newcomer.run(command))).toMatch(/call_\w+ +succeeded +shop +refund/)],
  [
    "npx toolrunner tools",
    async (command) => expect(expectDone(await newcomer.run(command))).toMatch(/shop +refund +1 +shop +write +Refund an order\./),
  ],
  [
    "curl ",
    async (command) => {
      const { http, agent_key: key } = await devFile();
      const call = JSON.parse(expectDone(await newcomer.run(command, { TOOLRUNNER_URL: http, TOOLRUNNER_KEY: key })));
      expect(call).toMatchObject({ type: "call", state: "succeeded", tool: "refund", result: { order: "A2", refunded: true } });
    },
  ],
];

/** The commands of a block, each with the lines that a backslash joins to it. */
function commandsOf(text: string): readonly string[] {
  return text
    .split(/(?<!\\)\n/)
    .map((command) => command.trim())
    .filter((command) => command !== "" && !command.startsWith("#"));
}

/** How to follow a block, by language and label. */
const RULES: Readonly<Record<string, (block: CodeBlock) => Promise<void>>> = {
  // The script sets the clone up first, which was done before these tests could run; what it then does is done here.
  sh: async ({ text }) => {
    expect(text).toBe("npm run demo\n");
    const { scripts }: { readonly scripts: Readonly<Record<string, string>> } = JSON.parse(readDocument("package.json"));
    expect(scripts.demo).toBe("node scripts/run.mjs demo");
    const module = JSON.stringify(join(ROOT, "scripts", "demo.mjs"));
    const { code, stdout } = await newcomer.run(
      `node --input-type=module -e 'const { demo } = await import(${module}); process.exitCode = await demo();'`,
    );
    expect(code, stdout).toBe(0);
    expect(stdout).toMatch(/call_\w+: succeeded/);
    expect(stdout).toContain('"name": "toolrunner"');
    expect(stdout.trimEnd()).toMatch(/\d+ {2}\S+ {2}settled$/);
  },
  "ts shop.ts": ({ label, text }) => newcomer.write(label, text),
  "sh terminal-1": async ({ text }) => {
    const terminal = newcomer.start(text);
    await terminal.shows("ToolRunner listens");
    await terminal.shows("durable");
    expect(terminal.output()).toContain("http://127.0.0.1:7070");
    expect(terminal.output()).toContain("grpc://127.0.0.1:7071");
  },
  "sh terminal-2": async ({ text }) => {
    const terminal = newcomer.start(text);
    await terminal.shows("ready: runner_");
    expect(terminal.output()).toContain("shop: refund@1");
  },
  "sh terminal-3": async ({ text }) => {
    const commands = commandsOf(text);
    expect(commands.length).toBeGreaterThan(0);
    for (const command of commands) {
      const rule = COMMANDS.find(([begins]) => command.startsWith(begins));
      if (rule === undefined) throw new Error(`no rule says what this prints: ${command}`);
      await rule[1](command);
    }
  },
  "js agent.mjs": async ({ label, text }) => {
    await newcomer.write(label, text);
    const lines = expectDone(await newcomer.run(`node ${label}`))
      .trimEnd()
      .split("\n");
    expect(lines[0]).toBe("succeeded { order: 'A1', refunded: true }");
    const events = lines.slice(1).map((line) => line.split(" "));
    // Progress is the one event that may be dropped.
    expect(events.map(([, event]) => event).filter((event) => event !== "progress")).toEqual([
      "requested",
      "queued",
      "granted",
      "started",
      "settled",
    ]);
    const numbers = events.map(([seq]) => Number(seq));
    expect(numbers).toEqual([...new Set(numbers)].sort((a, b) => a - b));
  },
  "js runner.mjs": async ({ label, text }) => {
    await newcomer.write(label, text);
    const runner = newcomer.start(`exec node ${label}`);
    await eventually(
      "the tool stock",
      async () => expectDone(await newcomer.run("npx toolrunner tools")).includes("stock") || runner.output() !== "",
      20_000,
    );
    const call = (article: string) =>
      newcomer.run(`npx toolrunner call stock --toolset warehouse --args '{"article":"${article}"}' --json`);
    expect(JSON.parse(expectDone(await call("lamp")))).toMatchObject({ state: "succeeded", result: { article: "lamp", left: 3 } });
    const { code, stdout } = await call("sofa");
    expect({ code, call: JSON.parse(stdout) }).toMatchObject({
      code: 1,
      call: { state: "failed", error: { code: "unknown_article", message: "there is no sofa" } },
    });
    expect({ code: await runner.end(), output: runner.output() }).toEqual({ code: 0, output: "" });
  },
  "html page/index.html": ({ label, text }) => newcomer.write(label, text),
  "js page/main.js": ({ label, text }) => newcomer.write(label, text),
  "js page/vite.config.js": ({ label, text }) => newcomer.write(label, text),
  "sh terminal-4": async ({ text }) => {
    const terminal = newcomer.start(text, { NO_COLOR: "1" });
    await terminal.shows("Local:");
    pageAddress = /Local:\s+(http:\/\/localhost:5173\/)/.exec(terminal.output())?.[1] ?? "";
    expect(pageAddress, terminal.output()).not.toBe("");
    // The page is told the runner's token; the agent's key, which lies beside it, is not served.
    const { agent_key: key } = await devFile();
    const told = await (await fetch(`${pageAddress}toolrunner.json`)).text();
    expect(Object.keys(JSON.parse(told))).toEqual(["ws", "runner_token"]);
    const taken = await fetch(`${pageAddress}@fs${join(newcomer.folder, ".toolrunner", "dev.json")}`);
    expect({ status: taken.status, told: (told + (await taken.text())).includes(key) }).toEqual({ status: 403, told: false });
  },
  "sh page-call": async ({ text }) => {
    browser = await startBrowser();
    const page = await browser.newTab();
    await page.goto(pageAddress);
    await eventually("the title that the README names", async () => (await page.title()) === "Orders: ready", 20_000);
    const stdout = expectDone(await newcomer.run(text));
    expect(stdout).toMatch(/^call_\w+ {2}page\/refund {2}succeeded\n/);
    expect(JSON.parse(stdout.slice(stdout.indexOf("{")))).toEqual({ order: "A3", refunded: true });
    expect(await page.textContent("#orders")).toBe("A3 refunded");
  },
  "sh several-brokers": async ({ text }) => {
    nats = await startNatsServer();
    const broker = newcomer.start(text, { ADMIN_KEY, NATS_URL: nats.url });
    await broker.shows("durable");
    expect(broker.output()).toContain("http://127.0.0.1:7080");
    expect(broker.output()).toContain("grpc://127.0.0.1:7081");
    expect(broker.output()).not.toContain("The bootstrap key");
  },
  "sh several-brokers-client": async ({ text }) => {
    const stdout = expectDone(await newcomer.run(text, { ADMIN_KEY }));
    expect(stdout).toContain("binding shop created");
    const [runnerKey] = /\btrr_\w+_[\w-]+/.exec(stdout) ?? [];
    const [agentKey] = /\btra_\w+_[\w-]+/.exec(stdout) ?? [];
    const ask = (key: string | undefined) =>
      fetch("http://127.0.0.1:7080/v1/calls", { headers: { authorization: `Bearer ${key}` } }).then((answer) => answer.status);
    expect({ agent: await ask(agentKey), runner: await ask(runnerKey) }).toEqual({ agent: 200, runner: 401 });
  },
};

describe.sequential("README.md, followed from top to bottom", () => {
  const blocks = codeBlocksIn(readDocument("README.md"));
  const nameOf = ({ language, label }: CodeBlock): string => `${language} ${label}`.trim();

  it("has the blocks that there are rules for, and no other", () => {
    expect([...new Set(blocks.map(nameOf))].sort()).toEqual(Object.keys(RULES).sort());
  });

  it("needs curl, as many readers will use it", () => {
    expect(spawnSync("curl", ["--version"]).status, "install curl: the README's last block of terminal 3 uses it").toBe(0);
  });

  for (const block of blocks) {
    const isSkipped = nameOf(block) === "sh page-call" && WITHOUT_CHROMIUM !== "";
    const title = `line ${block.line}: ${nameOf(block)}`;
    it.skipIf(isSkipped)(
      isSkipped ? titled(title) : title,
      async () => {
        const rule = RULES[nameOf(block)];
        if (rule === undefined) throw new Error(`README.md:${block.line}: no rule says how to follow a block "${nameOf(block)}"`);
        await rule(block);
      },
      90_000,
    );
  }
});

describe("the packages that the README names", () => {
  it("bring the command toolrunner with an installation", () => {
    const lock: { readonly packages: Readonly<Record<string, { readonly bin?: Readonly<Record<string, string>> }>> } = JSON.parse(
      readDocument("package-lock.json"),
    );
    expect(lock.packages.cli?.bin).toEqual({ toolrunner: "bin/toolrunner.js" });
  });
});
