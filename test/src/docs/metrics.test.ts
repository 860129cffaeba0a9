/** The documents about metrics name what a broker shows, and nothing else (D5). */
import { createBroker } from "@toolrunner/broker";
import { CALL_STATES, METRICS, type MetricDefinition } from "@toolrunner/broker/internal";
import { type ParsedMetrics, parseMetrics } from "@toolrunner/broker/testing";
import { CLOSE_CODES, ERROR_CODES } from "@toolrunner/proto";
import { beforeAll, describe, expect, it } from "vitest";
import { readDocument, tableBelow } from "./markdown.js";

const KEY = "key-of-the-documents-test-0123456789";
const operations = readDocument("docs/operations.md");
const definitions = new Map<string, MetricDefinition>(Object.values(METRICS).map((definition) => [definition.name, definition]));
let shown: ParsedMetrics;

beforeAll(async () => {
  const broker = await createBroker({
    mode: "dev",
    store: { kind: "memory" },
    http: { host: "127.0.0.1", port: 0 },
    grpc: null,
    staticKeys: [{ kind: "agent", id: "key_docs", key: KEY, application: "default", scopes: ["diagnostics:read"] }],
  });
  try {
    const response = await fetch(`${broker.addresses.http}/metrics`, { headers: { authorization: `Bearer ${KEY}` } });
    shown = parseMetrics(await response.text());
  } finally {
    await broker.stop({ drainMs: 0 });
  }
});

describe("the table of metrics in docs/operations.md (D5)", () => {
  const rows = tableBelow(operations, "## Metrics");

  it("has every metric that a broker shows, with its type, and no other", () => {
    const listed = rows.map(([name = "", type]) => [name.replaceAll("`", ""), type]);
    expect(listed.length).toBeGreaterThan(40);
    expect(listed).toEqual([...shown.metrics.values()].map(({ name, type }) => [name, type]));
  });

  it("has every metric's labels", () => {
    const labels = rows.map(([name = "", , cell = ""]) => [
      name.replaceAll("`", ""),
      [...cell.matchAll(/`(\w+)`/g)].map(([, label]) => label),
    ]);
    expect(Object.fromEntries(labels)).toEqual(Object.fromEntries([...definitions].map(([name, { labels: has }]) => [name, has])));
    for (const { name, samples } of shown.metrics.values()) {
      for (const sample of samples) {
        const has = Object.keys(sample.labels).filter((label) => label !== "le");
        expect([name, has]).toEqual([name, definitions.get(name)?.labels]);
      }
    }
  });
});

/** Expressions of a file of rules, by the name of their alert. */
function expressionsIn(rules: string): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  for (const rule of rules.split(/^ {6}- alert: /m).slice(1)) {
    const name = /^\S+/.exec(rule)?.[0] ?? "";
    const expression = /^ {8}expr: (?:>-\n((?: {10}.*\n)+)|(.+)$)/m.exec(rule);
    found.set(name, (expression?.[1] ?? expression?.[2] ?? "").trim());
  }
  return found;
}

describe("docs/alert-rules.yml (D5)", () => {
  const text = readDocument("docs/alert-rules.yml");
  const rules = expressionsIn(text);
  /** Given by Prometheus to all that it scrapes. */
  const OF_THE_SCRAPE = ["job", "instance"];
  const METRIC = /\b((?:toolrunner|process|nodejs)_\w+)(?:\{([^}]*)\})?/g;

  it("has an expression, a severity, a summary and an action for each alert", () => {
    expect(rules.size).toBeGreaterThanOrEqual(10);
    expect(text.match(/- alert:/g)?.length).toBe(rules.size);
    for (const [name, expression] of rules) expect([name, expression === ""]).toEqual([name, false]);
    for (const field of ["severity:", "summary:", "action:"]) expect([field, text.split(field).length - 1]).toEqual([field, rules.size]);
  });

  it("names only metrics and parts of metrics that a broker shows", () => {
    for (const [alert, expression] of rules) {
      const names = [...expression.matchAll(METRIC)].map(([, name = ""]) => name);
      if (names.length === 0) expect([alert, expression]).toEqual([alert, 'up{job="toolrunner"} == 0']);
      for (const name of names) {
        const base = name.replace(/_(?:bucket|sum|count)$/, "");
        const type = shown.metrics.get(name)?.type ?? shown.metrics.get(base)?.type;
        expect([alert, name, type === undefined ? "is not there" : "is there"]).toEqual([alert, name, "is there"]);
        // A histogram has parts only, and nothing else has any.
        expect([alert, name, type === "histogram"]).toEqual([alert, name, name !== base]);
      }
    }
  });

  const VALUES: Readonly<Record<string, readonly string[]>> = {
    state: CALL_STATES,
    use: ["used", "free"],
    outcome: ["stored", "conflict", "unknown"],
    reason: [...Object.values(CLOSE_CODES).map(({ name }) => name), "connection_lost"],
    code: Object.keys(ERROR_CODES),
    job: ["toolrunner"],
  };

  it("selects by labels that those metrics have, and by values that these take", () => {
    let selected = 0;
    for (const [alert, expression] of rules) {
      for (const [, name = "", selector = ""] of expression.matchAll(METRIC)) {
        const labels = definitions.get(name)?.labels ?? definitions.get(name.replace(/_bucket$/, ""))?.labels ?? [];
        for (const [, label = "", value = ""] of selector.matchAll(/(\w+)=~?"([^"]*)"/g)) {
          selected += 1;
          expect([alert, [...labels, ...OF_THE_SCRAPE]]).toEqual([alert, expect.arrayContaining([label])]);
          for (const each of value.split("|"))
            expect([alert, label, VALUES[label]]).toEqual([alert, label, expect.arrayContaining([each])]);
        }
      }
    }
    expect(selected).toBeGreaterThan(5);
  });

  it("groups, and tells, by labels that its metrics have", () => {
    const blocks = text.split(/^ {6}- alert: /m).slice(1);
    for (const block of blocks) {
      const metrics = [...block.matchAll(METRIC)].map(([, name = ""]) => name);
      const labels = metrics.flatMap(
        (name) => definitions.get(name)?.labels ?? definitions.get(name.replace(/_bucket$/, ""))?.labels ?? [],
      );
      const used = [
        ...[...block.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, list = ""]) => list.split(",").map((label) => label.trim())),
        ...[...block.matchAll(/\$labels\.(\w+)/g)].map(([, label = ""]) => label),
      ];
      const alert = block.slice(0, block.indexOf("\n"));
      expect([alert, used.filter((label) => ![...labels, ...OF_THE_SCRAPE, "le"].includes(label))]).toEqual([alert, []]);
    }
  });
});
