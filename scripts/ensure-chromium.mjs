#!/usr/bin/env node
/**
 * Makes a Chromium available for the tests of pages: `node scripts/ensure-chromium.mjs` prints its path.
 *
 * One that is installed is used as it is. Where there is none, Debian's package is installed with apt, which takes root: a browser needs
 * dozens of libraries, so it cannot be unpacked beside the clone as nats-server is. Anybody else is told what to do, and the tests that
 * need it say that they were skipped. `TOOLRUNNER_CHROMIUM` names a binary to use instead.
 */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);
const INSTALLED = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const APT_TRIES = 3;
/** The browser and its libraries are some hundred megabytes. */
const APT_MS = 600_000;

/** The path of the binary, installed when missing. Rejects with an error that says what to do when it cannot be had. */
export async function ensureChromium({ environment = process.env, installed = INSTALLED, install = installWithApt } = {}) {
  const named = environment.TOOLRUNNER_CHROMIUM;
  if (named !== undefined && named !== "") {
    if (!existsSync(named)) throw new Error(`TOOLRUNNER_CHROMIUM=${named} is no file`);
    return named;
  }
  const found = () => installed.find((path) => existsSync(path));
  if (found() === undefined) await install();
  const path = found();
  if (path === undefined) throw new Error("apt-get installed no chromium: install one, or name it in TOOLRUNNER_CHROMIUM");
  return path;
}

async function installWithApt() {
  if (process.getuid?.() !== 0) {
    throw new Error(
      "there is no chromium, and installing one takes root: run `apt-get install chromium`, or name one in TOOLRUNNER_CHROMIUM",
    );
  }
  const options = { env: { ...process.env, DEBIAN_FRONTEND: "noninteractive" }, timeout: APT_MS, maxBuffer: 16 * 1_048_576 };
  for (let tries = 1; ; tries += 1) {
    try {
      await run("apt-get", ["-qq", "update"], options);
      await run("apt-get", ["-qq", "install", "--yes", "--no-install-recommends", "chromium"], options);
      return;
    } catch (cause) {
      if (tries === APT_TRIES) {
        const said = String(cause.stderr || cause.message)
          .trim()
          .replaceAll(/\s*\n\s*/g, "; ");
        throw new Error(`apt-get could not install chromium (${said}): install one, or name it in TOOLRUNNER_CHROMIUM`, { cause });
      }
      // A mirror that is being updated, or another apt that holds the lock.
      await new Promise((resolve) => setTimeout(resolve, 5_000 * tries));
    }
  }
}

if (process.argv[1] !== undefined && fileURLToPath(import.meta.url) === process.argv[1]) {
  try {
    console.log(await ensureChromium());
  } catch (error) {
    console.error(error.message);
    process.exitCode = 1;
  }
}
