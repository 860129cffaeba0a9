/**
 * `node prune-modules.mjs FOLDER`: removes from FOLDER's `node_modules` what none of its packages needs to run.
 *
 * `npm ci --omit=dev` keeps what is an optional peer of a package as well as a development dependency of the repository: the test
 * runner, for the port suites that `@toolrunner/broker` exports, and all that comes with it. Nothing of it belongs into an image.
 *
 * What is needed: the dependencies of the command, theirs, and so on; optional ones if they are there; peers unless they are optional.
 */
import { existsSync, readdirSync, readFileSync, realpathSync, rmSync } from "node:fs";
import { dirname, join, sep } from "node:path";

const root = realpathSync(process.argv[2] ?? ".");
const needed = new Set();
follow(join(root, "cli"));

const removed = installedIn(join(root, "node_modules")).filter((folder) => !needed.has(realpathSync(folder)) && !holdsNeeded(folder));
for (const folder of removed) rmSync(folder, { recursive: true });
// Commands of packages that are gone, and of those that stay: nobody calls them.
rmSync(join(root, "node_modules", ".bin"), { recursive: true, force: true });
rmSync(join(root, "node_modules", ".package-lock.json"), { force: true });
process.stdout.write(`${needed.size} packages are needed, ${removed.length} removed\n`);

function follow(folder) {
  if (needed.has(folder)) return;
  needed.add(folder);
  const { dependencies = {}, optionalDependencies = {}, peerDependencies = {}, peerDependenciesMeta = {} } = manifestOf(folder);
  const peers = Object.keys(peerDependencies).filter((name) => peerDependenciesMeta[name]?.optional !== true);
  const optional = new Set(Object.keys(optionalDependencies));
  for (const name of new Set([...Object.keys(dependencies), ...optional, ...peers])) {
    const found = resolve(name, folder);
    if (found !== undefined) follow(found);
    else if (!optional.has(name)) throw new Error(`${folder} needs ${name}, which is not installed`);
  }
}

/** Where Node finds a package from a folder: in its own `node_modules`, or in one above, up to the root. */
function resolve(name, from) {
  for (let folder = from; ; folder = dirname(folder)) {
    const candidate = join(folder, "node_modules", name);
    if (existsSync(join(candidate, "package.json"))) return realpathSync(candidate);
    if (folder === root || folder === dirname(folder)) return undefined;
  }
}

/** Each package of a `node_modules`, scoped ones too, links as they are. */
function installedIn(modules) {
  return readdirSync(modules)
    .filter((name) => !name.startsWith("."))
    .flatMap((name) =>
      name.startsWith("@") ? readdirSync(join(modules, name)).map((each) => join(modules, name, each)) : join(modules, name),
    );
}

function holdsNeeded(folder) {
  const inside = realpathSync(folder) + sep;
  return [...needed].some((each) => each.startsWith(inside));
}

function manifestOf(folder) {
  return JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
}
