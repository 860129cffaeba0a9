/** `npm run verify`, which is what CI runs: everything is checked even when something failed, so that one run tells all. */
import { mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { npm, ROOT, run, runPackageProgram, say, timed, workspaces } from "./set-up.mjs";
import { test } from "./test-job.mjs";

/** Resolves with the exit code. The build before has checked the types. */
export async function verify() {
  const failed = [];
  const check = async (title, work) => {
    if ((await timed(title, work)) !== 0) failed.push(title);
  };
  await check("format and lint", () => runPackageProgram("@biomejs/biome/bin/biome", ["check", "--error-on-warnings", "."]));
  await check("generated code is current", () => run(process.execPath, ["scripts/generate-proto.mjs", "--check"]));
  await check("state diagram is current", () => run(process.execPath, ["scripts/generate-state-diagram.mjs", "--check"]));
  await check("buf lint", () => runPackageProgram("@bufbuild/buf/bin/buf", ["lint"], { cwd: join(ROOT, "proto") }));
  // The baseline is the messages as they were last released: a change that breaks a peer of that release is found here.
  await check("buf breaking", () =>
    runPackageProgram("@bufbuild/buf/bin/buf", ["breaking", "--against", "baseline/toolrunner.binpb"], { cwd: join(ROOT, "proto") }),
  );
  for (const folder of publishable()) await check(`package ${folder}`, () => checkPackage(folder));
  const tests = await test({ long: false });
  if (tests !== 0) failed.push("tests");
  say(failed.length === 0 ? "verified" : `not verified: ${failed.join(", ")}`);
  return failed.length === 0 ? 0 : 1;
}

/** Folders of packages that are published. */
function publishable() {
  return workspaces().filter((folder) => JSON.parse(readFileSync(join(ROOT, folder, "package.json"), "utf8")).private !== true);
}

/** What would be published: entries that exist, types that resolve. Packages are ESM only, which Node 20.19 can also `require`. */
async function checkPackage(folder) {
  const lint = await runPackageProgram("publint/src/cli.js", [folder, "--strict"]);
  const packed = join(ROOT, ".cache", "packed");
  rmSync(packed, { recursive: true, force: true });
  mkdirSync(packed, { recursive: true });
  const pack = await npm(["pack", "--workspace", folder, "--pack-destination", packed, "--silent"], {
    stdio: ["ignore", "ignore", "inherit"],
  });
  const [file] = readdirSync(packed);
  if (pack !== 0 || file === undefined) return 1;
  const types = await runPackageProgram("@arethetypeswrong/cli/dist/index.js", [
    join(packed, file),
    "--profile",
    "esm-only",
    "--format",
    "ascii",
  ]);
  return lint === 0 && types === 0 ? 0 : 1;
}
