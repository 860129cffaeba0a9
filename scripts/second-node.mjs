/**
 * A second Node beside the one in use, so that the port suites run on two of them.
 *
 * Owns `.cache/node-VERSION`: the npm package `node-PLATFORM-ARCH` (the binaries that the package `node` installs), which also
 * carries the headers that an add-on is compiled with, and a copy of better-sqlite3 compiled for that Node.
 */
import { copyFileSync, cpSync, existsSync, mkdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { exited, npm, ROOT, StepFailed, start } from "./set-up.mjs";

/** The newest long-term release when this was written; on it, Node 22.20 is the second one. */
export const SECOND_NODE = process.versions.node.startsWith("24.") ? "22.20.0" : "24.21.0";

const FOLDER = join(ROOT, ".cache", `node-${SECOND_NODE}-${process.platform}-${process.arch}`);
const PACKAGE = `node-${process.platform === "win32" ? "win" : process.platform}-${process.arch}`;
const HOME = join(FOLDER, "node_modules", PACKAGE);
const ADD_ON = join(FOLDER, "better_sqlite3.node");

/** Path of the second Node's program; fetched from the npm registry the first time. */
export async function secondNode() {
  const program = join(HOME, "bin", process.platform === "win32" ? "node.exe" : "node");
  if (!existsSync(program)) {
    mkdirSync(FOLDER, { recursive: true });
    const code = await npm(
      [
        "install",
        "--prefix",
        FOLDER,
        "--no-save",
        "--ignore-scripts",
        "--no-package-lock",
        "--loglevel=error",
        `${PACKAGE}@${SECOND_NODE}`,
      ],
      {
        stdio: ["ignore", "ignore", "inherit"],
      },
    );
    if (code !== 0 || !existsSync(program)) throw new StepFailed(`${PACKAGE}@${SECOND_NODE} could not be had from the npm registry`);
  }
  return program;
}

/** Whether better-sqlite3 is already compiled for the second Node. */
export function hasSecondSqlite() {
  return existsSync(ADD_ON);
}

/** Compiles better-sqlite3 for the second Node, about a minute, unless it is there. */
export async function compileSecondSqlite() {
  if (hasSecondSqlite()) return;
  const node = await secondNode();
  const gyp = nodeGyp();
  if (gyp === undefined) throw new StepFailed("node-gyp was not found beside npm");
  const source = join(FOLDER, "better-sqlite3");
  rmSync(source, { recursive: true, force: true });
  const original = join(ROOT, "node_modules", "better-sqlite3");
  cpSync(original, source, { recursive: true, filter: (path) => path !== join(original, "build") });
  const built = await exited(
    start(node, [gyp, "rebuild", "--release", `--nodedir=${HOME}`, "--jobs=max"], {
      cwd: source,
      stdio: ["ignore", "ignore", "inherit"],
      env: { PATH: `${dirname(node)}:${process.env.PATH}`, npm_config_nodedir: HOME },
    }),
  );
  if (built !== 0) throw new StepFailed("better-sqlite3 did not compile for the second Node");
  copyFileSync(join(source, "build", "Release", "better_sqlite3.node"), ADD_ON);
  rmSync(source, { recursive: true, force: true });
}

/** Environment that makes processes of the second Node load its own better-sqlite3. */
export function secondSqliteEnvironment() {
  return {
    NODE_OPTIONS: [process.env.NODE_OPTIONS, `--require=${JSON.stringify(join(ROOT, "scripts", "redirect-sqlite.cjs"))}`]
      .filter(Boolean)
      .join(" "),
    TOOLRUNNER_SQLITE_ADD_ON: ADD_ON,
  };
}

function nodeGyp() {
  const npmFolders = [
    process.env.npm_execpath && dirname(dirname(process.env.npm_execpath)),
    join(dirname(dirname(process.execPath)), "lib/node_modules/npm"),
  ];
  for (const folder of npmFolders) {
    const path = folder && join(folder, "node_modules/node-gyp/bin/node-gyp.js");
    if (path && existsSync(path)) return path;
  }
  return undefined;
}
