#!/usr/bin/env node
/**
 * Generates `proto/src/gen` from `proto/toolrunner/v1/*.proto` with buf.
 *
 *   node scripts/generate-proto.mjs            writes proto/src/gen
 *   node scripts/generate-proto.mjs --check    generates into a temporary folder and compares; exit 1 when they differ
 *
 * Needs no network: buf and both plugins are installed with the repository.
 */
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const protoFolder = join(root, "proto");
const generatedFolder = join(protoFolder, "src", "gen");
const buf = join(root, "node_modules", ".bin", "buf");

function runBuf(args) {
  const { status, error } = spawnSync(buf, args, { cwd: protoFolder, stdio: "inherit" });
  if (error) throw new Error(`buf could not be started: ${error.message}; run npm ci first`, { cause: error });
  if (status !== 0) throw new Error(`buf ${args.join(" ")} failed with exit code ${status}`);
}

/** Writes `proto/src/gen` anew. */
export function generateProto() {
  runBuf(["generate"]);
}

/** Names of generated files, relative to `proto/src/gen`, that are missing, left over or different; empty when all is current. */
export function staleProtoFiles() {
  const temporary = mkdtempSync(join(tmpdir(), "toolrunner-proto-"));
  try {
    runBuf(["generate", "--output", temporary]);
    const fresh = readTree(join(temporary, "src", "gen"));
    const committed = readTree(generatedFolder);
    const names = new Set([...fresh.keys(), ...committed.keys()]);
    return [...names].filter((name) => fresh.get(name) !== committed.get(name)).sort();
  } finally {
    rmSync(temporary, { recursive: true, force: true });
  }
}

function readTree(folder) {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  return new Map(
    files.map((entry) => {
      const path = join(entry.parentPath ?? entry.path, entry.name);
      return [relative(folder, path), readFileSync(path, "utf8")];
    }),
  );
}

function main(args) {
  const unknown = args.find((arg) => arg !== "--check");
  if (unknown !== undefined) {
    console.error(`unknown option ${unknown}; the only one is --check`);
    return 2;
  }
  if (args.length === 0) {
    generateProto();
    return 0;
  }
  const stale = staleProtoFiles();
  if (stale.length === 0) return 0;
  console.error(`proto/src/gen is not what the .proto files make: ${stale.join(", ")}. Run: npm run generate`);
  return 1;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    process.exitCode = main(process.argv.slice(2));
  } catch (error) {
    console.error(error.message);
    process.exitCode = 1;
  }
}
