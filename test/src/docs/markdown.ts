/** Reads the repository's Markdown: blocks of code, links and headings. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** The repository. */
export const ROOT = fileURLToPath(new URL("../../../", import.meta.url));

/** A fenced block: what stands behind the fence, and what is in it. */
export interface CodeBlock {
  readonly language: string;
  /** What follows the language: a file's name, or the terminal that the commands belong to. Empty when there is nothing. */
  readonly label: string;
  readonly text: string;
  /** Of the opening fence; counts from 1. */
  readonly line: number;
}

/** All fenced blocks, in order. Throws when a fence is not closed. */
export function codeBlocksIn(markdown: string): readonly CodeBlock[] {
  const blocks: CodeBlock[] = [];
  let open: { readonly info: string; readonly line: number; readonly lines: string[] } | undefined;
  for (const [index, content] of markdown.split("\n").entries()) {
    const fence = /^```(.*)$/.exec(content);
    if (open === undefined) {
      if (fence !== null) open = { info: (fence[1] ?? "").trim(), line: index + 1, lines: [] };
    } else if (fence === null) {
      open.lines.push(content);
    } else {
      const [language = "", ...label] = open.info.split(/\s+/);
      blocks.push({ language, label: label.join(" "), text: `${open.lines.join("\n")}\n`, line: open.line });
      open = undefined;
    }
  }
  if (open !== undefined) throw new Error(`the block that begins in line ${open.line} is not closed`);
  return blocks;
}

/** The text without its fenced blocks, line by line as before. */
export function proseOf(markdown: string): string {
  let inside = false;
  return markdown
    .split("\n")
    .map((content) => {
      const fence = content.startsWith("```");
      if (fence) inside = !inside;
      return inside || fence ? "" : content;
    })
    .join("\n");
}

/** Targets of links that name no other site, with their lines. */
export function relativeLinksIn(markdown: string): readonly { readonly target: string; readonly line: number }[] {
  return proseOf(markdown)
    .split("\n")
    .flatMap((content, index) =>
      [...content.replace(/`[^`]*`/g, "").matchAll(/\]\(([^)\s]+)\)/g)].map(([, target = ""]) => ({ target, line: index + 1 })),
    )
    .filter(({ target }) => !/^[a-z][a-z0-9+.-]*:/i.test(target));
}

/** The names by which a document's headings can be linked to. */
export function anchorsOf(markdown: string): ReadonlySet<string> {
  const headings = [...proseOf(markdown).matchAll(/^#{1,6}\s+(.+)$/gm)].map(([, text = ""]) => text);
  return new Set(
    headings.map((text) =>
      text
        .toLowerCase()
        .replace(/[^\p{L}\p{N}\s_-]/gu, "")
        .trim()
        .replaceAll(" ", "-"),
    ),
  );
}

/** Rows of the table that follows `heading`, each as its cells; the head is left out. Empty when there is no such table. */
export function tableBelow(markdown: string, heading: string): readonly (readonly string[])[] {
  const lines = markdown.split("\n");
  const from = lines.indexOf(heading);
  if (from < 0) return [];
  const begin = lines.findIndex((content, index) => index > from && content.startsWith("|"));
  const end = lines.findIndex((content, index) => index > from && /^#{1,6} /.test(content));
  if (begin < 0 || (end >= 0 && end < begin)) return [];
  const rows: string[][] = [];
  for (const content of lines.slice(begin + 2)) {
    if (!content.startsWith("|")) break;
    rows.push(
      content
        .slice(1, -1)
        .split(/(?<!\\)\|/)
        .map((cell) => cell.trim()),
    );
  }
  return rows;
}

/** A file of the repository. */
export function readDocument(path: string): string {
  return readFileSync(join(ROOT, path), "utf8");
}

/** Every document that users and contributors read: those at the root, below `docs/`, and the packages' own. */
export function documentPaths(): readonly string[] {
  const below = (folder: string): string[] =>
    readdirSync(join(ROOT, folder), { recursive: true, encoding: "utf8" })
      .filter((name) => name.endsWith(".md"))
      .map((name) => `${folder}/${name.replaceAll("\\", "/")}`);
  const atRoot = readdirSync(ROOT).filter((name) => name.endsWith(".md"));
  const manifest: { readonly workspaces: readonly string[] } = JSON.parse(readDocument("package.json"));
  const packages = manifest.workspaces.flatMap((folder) =>
    readdirSync(join(ROOT, folder))
      .filter((name) => name.endsWith(".md"))
      .map((name) => `${folder}/${name}`),
  );
  return [...atRoot, ...below("docs"), ...packages, ...below("proto/golden")].sort();
}
