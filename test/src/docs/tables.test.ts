/** What documents take from the code is what the code says. */
import { execFile } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CLOSE_CODES, ERROR_CODES, type ErrorCode, isErrorCode } from "@toolrunner/proto";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { readContents } from "../architecture/source-tree.js";
import { ROOT, readDocument, tableBelow } from "./markdown.js";

/** Sources that ship, by path: neither tests nor what only tests use. */
const sources = readContents(
  ROOT,
  (path) => /^(?:broker|runner-sdk)\/src\/.*\.ts$/.test(path) && !/\.test(?:[.-]kit)?\.ts$|\/testing(?:\.ts$|\/)/.test(path),
);

function found(pattern: RegExp, below = ""): readonly { readonly path: string; readonly groups: readonly string[] }[] {
  return Object.entries(sources)
    .filter(([path]) => path.startsWith(below))
    .flatMap(([path, text]) => [...text.matchAll(pattern)].map(([, ...groups]) => ({ path, groups })));
}

describe("scripts/generate-docs.mjs", () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "toolrunner-docs-"));
    mkdirSync(join(folder, "docs"));
    for (const name of GENERATED) cpSync(join(ROOT, name), join(folder, name));
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  const GENERATED = ["docs/errors.md", "docs/protocol.md", "docs/operations.md"];

  function generate(...args: readonly string[]): Promise<{ readonly code: number | string; readonly stderr: string }> {
    return new Promise((resolve) => {
      execFile(process.execPath, [join(ROOT, "scripts", "generate-docs.mjs"), ...args], (error, _stdout, stderr) =>
        resolve({ code: error?.code ?? 0, stderr }),
      );
    });
  }

  it("would write the documents as they are", async () => {
    expect(await generate("--check")).toEqual({ code: 0, stderr: "" });
  });

  it.each(GENERATED)("refuses %s when a row is gone, and writes it back", async (name) => {
    const committed = readFileSync(join(folder, name), "utf8");
    const rows = committed.split("\n");
    const from = rows.findIndex((line) => line.startsWith("<!-- generated") || line.startsWith("<!-- Generated"));
    const row = rows.findIndex((line, index) => (index > from && line.startsWith("| `")) || (index > from && /^\| \d/.test(line)));
    expect(row).toBeGreaterThan(from);
    writeFileSync(join(folder, name), rows.filter((_, index) => index !== row).join("\n"));
    const stale = await generate("--check", "--root", folder);
    expect(stale).toEqual({ code: 1, stderr: `${name} is out of date: run node scripts/generate-docs.mjs\n` });
    expect((await generate("--root", folder)).code).toBe(0);
    expect(readFileSync(join(folder, name), "utf8")).toBe(committed);
  });
});

describe("docs/errors.md", () => {
  it("has every code of the table with its status, and no other", () => {
    const text = readDocument("docs/errors.md");
    const rows = [...text.matchAll(/^\| `([a-z_]+)` \| (\d+|–) \|/gm)].map(([, code = "", http = ""]) => [code, http]);
    expect(rows.sort()).toEqual(
      Object.entries(ERROR_CODES)
        .map(([code, row]) => [code, row.http === null ? "–" : String(row.http)])
        .sort(),
    );
  });
});

describe("the error table", () => {
  /** How code spells a code of each family. */
  const refusals = [
    ...found(/new BrokerError\(\s*"([^"]*)"/g),
    ...found(/\bkind: "refused",\s*code: "([^"]*)"/g, "broker/src/wire/"),
    ...found(/\brefused\(\s*"([^"]*)"/g, "broker/src/domain/call/"),
    ...found(/\bfault\(\s*"([^"]*)",\s*\d/g, "broker/src/gateway/"),
  ];
  const settlements = [
    ...found(/\b(?:callError|plainError)\(\s*"([^"]*)"/g, "broker/src/"),
    ...found(/\bfailure\(\s*"([^"]*)"/g, "runner-sdk/src/"),
  ];
  const sessionFaults = [
    ...found(/\brefuse\(\s*(?:channel,\s*)?"([^"]*)"/g, "broker/src/wire/"),
    ...found(/\bfault\(\s*(?:session|channel),\s*"([^"]*)"/g, "broker/src/wire/"),
    ...found(/\bprotocolFaultFrame\(\s*"([^"]*)"/g, "runner-sdk/src/"),
  ];
  const codesOf = (list: typeof refusals): ReadonlySet<string> => new Set(list.map(({ groups }) => groups[0] ?? ""));

  it("has every code that code spells out, in the family that fits", () => {
    expect([refusals.length > 40, settlements.length > 10, sessionFaults.length > 10]).toEqual([true, true, true]);
    const wrong = [
      ...refusals.map((at) => ({ ...at, fits: (code: ErrorCode) => ERROR_CODES[code].http !== null })),
      // A call can fail as a request would be refused, with arguments that are no JSON.
      ...settlements.map((at) => ({ ...at, fits: (code: ErrorCode) => ERROR_CODES[code].type !== "session_error" })),
      ...sessionFaults.map((at) => ({ ...at, fits: (code: ErrorCode) => ERROR_CODES[code].type === "session_error" })),
    ]
      .filter(({ groups: [code = ""], fits }) => !isErrorCode(code) || !fits(code))
      .map(({ path, groups }) => `${path}: ${groups[0]}`);
    expect(wrong).toEqual([]);
  });

  it("has no row that nothing uses", () => {
    const used = new Set([...codesOf(refusals), ...codesOf(settlements), ...codesOf(sessionFaults)]);
    expect(Object.keys(ERROR_CODES).filter((code) => !used.has(code))).toEqual([]);
  });
});

describe("docs/protocol.md", () => {
  const protocol = readDocument("docs/protocol.md");

  it("describes every kind of frame, from the side that sends it, and no other", () => {
    const proto = readDocument("proto/toolrunner/v1/session.proto");
    for (const [message, opening] of [
      ["RunnerFrame", "From the runner:"],
      ["BrokerFrame", "From the broker:"],
    ] as const) {
      const body = new RegExp(`message ${message} \\{\\s*oneof frame \\{([^}]*)\\}`).exec(proto)?.[1] ?? "";
      const kinds = [...body.matchAll(/^\s*\w+ (\w+) = \d+;/gm)].map(([, kind]) => kind);
      expect(kinds.length, message).toBeGreaterThan(8);
      const described = tableBelow(protocol, opening).map(([cell = ""]) => cell.replaceAll("`", ""));
      expect({ message, described }).toEqual({ message, described: kinds });
    }
  });

  it("names every value of the enums that decide something", () => {
    const proto = readDocument("proto/toolrunner/v1/session.proto");
    for (const [name, prefix] of [
      ["GrantPhase", "GRANT_PHASE_"],
      ["ReceiptDisposition", "RECEIPT_DISPOSITION_"],
      ["DeclineReason", "DECLINE_REASON_"],
      ["CancelLevel", "CANCEL_LEVEL_"],
    ] as const) {
      const body = new RegExp(`enum ${name} \\{([^}]*)\\}`).exec(proto)?.[1] ?? "";
      const values = [...body.matchAll(new RegExp(`\\b${prefix}(\\w+) = [1-9]`, "g"))].map(([, value = ""]) => value);
      expect(values.length, name).toBeGreaterThan(1);
      for (const value of values) expect(protocol, name).toContain(`\`${value}\``);
    }
  });

  it("names both subprotocols, the gRPC method, both trailers and every close code", () => {
    for (const text of [
      "toolrunner.v1.proto",
      "toolrunner.v1.json",
      "/toolrunner.v1.RunnerGateway/Session",
      "toolrunner-close-code",
      "toolrunner-close-reason",
      ...Object.entries(CLOSE_CODES).map(([code, { name }]) => `| ${code} | \`${name}\` |`),
    ]) {
      expect(protocol).toContain(text);
    }
  });
});

describe("docs/operations.md", () => {
  const operations = readDocument("docs/operations.md");
  const LEVEL = "(debug|info|warn|error)";

  /** Events with the levels at which they are logged. */
  function eventsBelow(folder: string): Readonly<Record<string, string>> {
    const levels = new Map<string, Set<string>>();
    const add = (event: string, level: string) => levels.set(event, (levels.get(event) ?? new Set()).add(level));
    for (const { groups } of found(new RegExp(`\\blog\\??\\.${LEVEL}\\(\\s*"([^"]+)"`, "g"), folder)) add(groups[1] ?? "", groups[0] ?? "");
    for (const { groups } of found(/\blog\[level\]\(\s*"([^"]+)"/g, folder)) {
      for (const level of ["debug", "info", "warn"]) add(groups[0] ?? "", level);
    }
    for (const { groups } of found(/\blogFailure\(\s*"([^"]+)"/g, folder)) add(groups[0] ?? "", "error");
    return Object.fromEntries(
      [...levels].map(([event, at]) => [event, words(["debug", "info", "warn", "error"].filter((level) => at.has(level)))]),
    );
  }

  const words = (list: readonly string[]): string =>
    list.length < 2 ? list.join("") : `${list.slice(0, -1).join(", ")} or ${list.at(-1)}`;

  it.each([
    ["### Broker", "broker/src/", 60],
    ["### Runner", "runner-sdk/src/", 20],
  ])("lists every log event below %s with its level, and no other", (heading, folder, atLeast) => {
    const listed = Object.fromEntries(
      tableBelow(operations, heading).map(([event = "", level = ""]) => [event.replaceAll("`", ""), level]),
    );
    expect(Object.keys(listed).length).toBeGreaterThan(atLeast);
    expect(listed).toEqual(eventsBelow(folder));
  });

  it("misses no event whose name is not written out where it is logged", () => {
    const computed = found(new RegExp(`\\blog\\??\\.${LEVEL}\\(\\s*(?!")([^,)]*)`, "g")).map(({ path, groups }) => `${path}: ${groups[1]}`);
    // The events of this one are its callers', which are found by its name.
    expect(computed).toEqual(["broker/src/bus/nats/nats-bus.ts: event"]);
  });

  it("names the streams and buckets that a backup needs", () => {
    for (const name of [
      "tr_calls",
      "tr_blobs",
      "tr_index",
      "tr_lanes",
      "KV_tr_catalog",
      "tr_brokers",
      "tr_sessions",
      "ledger.db",
      "catalog.db",
      "index.db",
    ]) {
      expect(operations).toContain(`\`${name}\``);
    }
    const names = sources["broker/src/ledger/jetstream/names.ts"] ?? "";
    for (const part of ["_calls", "_index", "_blobs", "_lanes"]) expect(names).toContain(`\${prefix}${part}`);
    expect(found(/bus\.registry\("(\w+)"\)/g).map(({ groups }) => groups[0])).toEqual(expect.arrayContaining(["brokers", "sessions"]));
  });
});
