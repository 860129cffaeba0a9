import { existsSync, statSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { describe, expect, it } from "vitest";
import { leftoversIn } from "../architecture/check-text.js";
import { readContents } from "../architecture/source-tree.js";
import { anchorsOf, codeBlocksIn, documentPaths, proseOf, ROOT, readDocument, relativeLinksIn } from "./markdown.js";

const documents = documentPaths().map((path) => ({ path, text: readDocument(path) }));

/** Words that say where or by whom something was made, instead of what it is. Written in halves, so that this file does not hold them. */
const FOREIGN = new RegExp(
  [
    ["\\bissue", " ?#?\\d"],
    ["\\bmile", "stone \\d"],
    ["\\btick", "et #?\\d"],
    ["\\bsprint ", "\\d"],
    ["\\bAI ass", "istant"],
    ["\\blanguage mod", "el wrote"],
    ["lorem ", "ipsum"],
    ["\\bcoming so", "on\\b"],
    ["\\bT", "BD\\b"],
  ]
    .map((parts) => parts.join(""))
    .join("|"),
  "i",
);

describe("the documents", () => {
  it("are all there", () => {
    const paths = documents.map(({ path }) => path);
    for (const expected of [
      "README.md",
      "CHANGELOG.md",
      "CONTRIBUTING.md",
      "docs/architecture.md",
      "docs/dependencies.md",
      "docs/errors.md",
      "docs/operations.md",
      "docs/protocol.md",
      "docs/state-machine.md",
      "proto/README.md",
    ]) {
      expect(paths).toContain(expected);
    }
  });

  it("link to nothing that is not there", () => {
    const broken: string[] = [];
    let links = 0;
    for (const { path, text } of documents) {
      for (const { target, line } of relativeLinksIn(text)) {
        links += 1;
        const [file = "", anchor] = target.split("#");
        const linked = file === "" ? path : normalize(join(dirname(path), file));
        if (linked.startsWith("..") || !existsSync(join(ROOT, linked))) broken.push(`${path}:${line} ${target}`);
        else if (anchor !== undefined && !(statSync(join(ROOT, linked)).isFile() && anchorsOf(readDocument(linked)).has(anchor))) {
          broken.push(`${path}:${line} ${target}`);
        }
      }
    }
    expect(broken).toEqual([]);
    expect(links).toBeGreaterThan(20);
  });

  it("hold no notes to oneself, no path of one machine and no word about how they were made", () => {
    const found = documents.flatMap(({ path, text }) => [
      ...leftoversIn(path, text).map(({ file, line, message }) => `${file}:${line} ${message}`),
      ...text.split("\n").flatMap((content, index) => (FOREIGN.test(content) ? [`${path}:${index + 1} ${content}`] : [])),
    ]);
    expect(found).toEqual([]);
  });

  it("name no file of the repository that is not there", () => {
    const files = new Set(Object.keys(readContents(ROOT, () => true)));
    const missing = documents.flatMap(({ path, text }) =>
      [...proseOf(text).matchAll(/`((?:broker|proto|runner-sdk|agent-sdk|cli|runners|test|scripts|docs|bench)\/[\w./-]+\.[a-z]+)`/g)]
        .map(([, named = ""]) => named)
        .filter((named) => !files.has(named) && !named.includes("NNNN"))
        .map((named) => `${path}: ${named}`),
    );
    expect(missing).toEqual([]);
  });
});

describe("the decisions in docs/adr", () => {
  const decisions = documents.filter(({ path }) => path.startsWith("docs/adr/"));

  it("are numbered without a gap, in name and title", () => {
    expect(decisions.length).toBeGreaterThan(8);
    for (const [index, { path, text }] of decisions.entries()) {
      const number = String(index + 1);
      expect(path).toMatch(new RegExp(`^docs/adr/${number.padStart(4, "0")}-[a-z0-9-]+\\.md$`));
      expect(text.split("\n")[0]).toMatch(new RegExp(`^# ${number}\\. [A-Z\`]`));
    }
  });

  it("say context, decision and consequences, in this order, and are short", () => {
    for (const { path, text } of decisions) {
      expect({ path, headings: [...text.matchAll(/^## (.+)$/gm)].map(([, heading]) => heading) }).toEqual({
        path,
        headings: ["Context", "Decision", "Consequences"],
      });
      expect(text.split(/\s+/).length, path).toBeLessThan(500);
    }
  });
});

describe("CHANGELOG.md", () => {
  const changelog = readDocument("CHANGELOG.md");

  it("has a section for the present version, and says what is not there yet", () => {
    const { version }: { readonly version: string } = JSON.parse(readDocument("package.json"));
    expect(changelog).toMatch(new RegExp(`^## ${version.replaceAll(".", "\\.")}( \\(unreleased\\))?$`, "m"));
    expect(changelog).toContain("### What is not there yet");
  });

  it("is written in sentences", () => {
    const entries = proseOf(changelog)
      .split(/^(?=- )/m)
      .slice(1)
      .map((entry) => entry.split(/\n(?=#|\n)/)[0]?.trim() ?? "");
    expect(entries.length).toBeGreaterThan(10);
    for (const entry of entries) expect(entry).toMatch(/^- (\*\*)?[A-Z`].*\.$/s);
  });
});

describe("README.md", () => {
  it("shows a tool in TypeScript of at most 20 lines", () => {
    const files = codeBlocksIn(readDocument("README.md")).filter(({ language }) => language === "ts");
    expect(files.map(({ label }) => label)).toContain("shop.ts");
    for (const { label, text } of files) expect({ label, fits: text.trimEnd().split("\n").length <= 20 }).toEqual({ label, fits: true });
  });
});
