/**
 * Provisioning: what is an explicit act outside `toolrunner dev`. `node provision.mjs FOLDER KEY_FILE` registers the binding in
 * FOLDER/binding.json, saves the toolset in FOLDER/toolset.json, and puts a key of that binding into KEY_FILE, for its runner.
 *
 * It can be run again and again: a toolset that is stored already makes no new version, and a key in KEY_FILE that still works stays.
 * The files are the truth: tools that were changed by hand are set back. Exit code 0, or 1 with one line that says what to do.
 *
 * `TOOLRUNNER_URL`: a broker. `TOOLRUNNER_KEY`: an agent key with `admin` and `catalog:write`, such as the bootstrap key.
 */
import { chmod, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";

const PATIENCE_MS = 60_000;
const PAUSE_MS = 500;
const REQUEST_MS = 10_000;

const [folder, keyFile] = process.argv.slice(2);
const { TOOLRUNNER_URL: url, TOOLRUNNER_KEY: key } = process.env;

try {
  if (folder === undefined || keyFile === undefined) throw new Error("usage: node provision.mjs FOLDER KEY_FILE");
  if (!url || !key) throw new Error("set TOOLRUNNER_URL and TOOLRUNNER_KEY");
  const binding = await provisionBinding(await readJson(join(folder, "binding.json")));
  await provisionToolset(await readJson(join(folder, "toolset.json")));
  await provisionKey(binding);
} catch (cause) {
  process.stderr.write(`provision: ${cause.message}\n`);
  process.exitCode = 1;
}

async function provisionBinding({ id, ...body }) {
  const { status } = await request("PUT", `/v1/bindings/${encodeURIComponent(id)}`, body);
  say(`binding ${id} ${status === 201 ? "created" : "is there"}`);
  return id;
}

async function provisionToolset({ id, tools }) {
  const path = `/v1/toolsets/${encodeURIComponent(id)}`;
  const stored = await request("GET", path, undefined, [404]);
  const now = stored.status === 404 ? { version: 0, tools: [] } : stored.body;
  if (isStored(tools, now.tools)) return say(`toolset ${id} is there, version ${now.version}`);
  const { body } = await request("PUT", path, { base_version: now.version, tools });
  say(`toolset ${id} saved, version ${body.version}`);
}

/** The broker completes what a definition leaves out: what the file says has to be there, the rest may be anything. */
function isStored(tools, stored) {
  return (
    tools.length === stored.length &&
    tools.every((tool) => {
      const found = stored.find(({ name }) => name === tool.name);
      return found !== undefined && Object.entries(tool).every(([field, value]) => isDeepStrictEqual(found[field], value));
    })
  );
}

async function provisionKey(binding) {
  const path = `/v1/bindings/${encodeURIComponent(binding)}/keys`;
  const earlier = await keyIdIn(keyFile);
  if (earlier !== undefined) {
    const { status, body } = await request("GET", `${path}/${encodeURIComponent(earlier)}`, undefined, [404]);
    if (status === 200 && body.revoked_at === null) return say(`the runner key in ${keyFile} is ${earlier}`);
  }
  const { body } = await request("POST", path, { name: `runner of ${binding}` });
  // Complete or not there: the runner reads the file at any time.
  const draft = `${keyFile}.new`;
  try {
    await writeFile(draft, `${body.key}\n`, { mode: 0o600 });
    await chmod(draft, 0o600);
    await rename(draft, keyFile);
  } catch (cause) {
    await rm(draft, { force: true });
    // A key that nobody has is of no use, and this step will be repeated.
    await request("DELETE", `${path}/${encodeURIComponent(body.id)}`);
    throw new Error(`the runner key cannot be written: ${cause.message}`, { cause });
  }
  say(`a runner key is in ${keyFile}: ${body.id}`);
}

/** Keys are `trr_ID_SECRET`. */
async function keyIdIn(file) {
  const text = await readFile(file, "utf8").catch((cause) => {
    if (cause.code === "ENOENT") return "";
    throw new Error(`${file} cannot be read: ${cause.message}`, { cause });
  });
  const [, id] = /^trr_([a-z0-9]+)_/.exec(text) ?? [];
  return id === undefined ? undefined : `key_${id}`;
}

/** One request, repeated while no broker is ready. All requests here may be repeated; a key made twice is one too many, and works. */
async function request(method, path, body, accepted = []) {
  const deadline = Date.now() + PATIENCE_MS;
  for (;;) {
    const answer = await attempt(method, path, body);
    if (answer.status !== undefined && (answer.status < 300 || accepted.includes(answer.status))) return answer;
    if (answer.status !== undefined && answer.status !== 503) throw new Error(`${method} ${path}: ${answer.status} ${answer.problem}`);
    if (Date.now() > deadline) throw new Error(`${method} ${url}${path}: ${answer.problem}`);
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}

async function attempt(method, path, body) {
  try {
    const answer = await fetch(`${url}${path}`, {
      method,
      headers: { authorization: `Bearer ${key}`, ...(body === undefined ? {} : { "content-type": "application/json" }) },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(REQUEST_MS),
    });
    const text = await answer.text();
    const read = text === "" ? undefined : JSON.parse(text);
    return { status: answer.status, body: read, problem: read?.error?.message ?? text };
  } catch (cause) {
    return { status: undefined, body: undefined, problem: cause?.cause?.message || cause.message };
  }
}

async function readJson(file) {
  try {
    return JSON.parse(await readFile(file, "utf8"));
  } catch (cause) {
    throw new Error(`${file}: ${cause.message}`, { cause });
  }
}

function say(line) {
  process.stdout.write(`${line}\n`);
}
