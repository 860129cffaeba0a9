/**
 * `npm run demo`: an embedded broker, a workspace runner and a real call, each by the command that users type.
 *
 * Invariants: it ends by itself; it leaves no process and no file behind, also when it fails or is interrupted.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { exited, ROOT, StepFailed, say, start } from "./set-up.mjs";

const TOOLRUNNER = join(ROOT, "cli", "bin", "toolrunner.js");
const READY_MS = 30_000;

/** Resolves with the exit code. */
export async function demo() {
  const folder = mkdtempSync(join(tmpdir(), "toolrunner-demo-"));
  const running = [];
  try {
    const module = join(folder, "workspace.ts");
    writeFileSync(
      module,
      `import { workspaceTools } from "@toolrunner/runner-backend";\n\nexport default workspaceTools({ root: ${JSON.stringify(ROOT)} });\n`,
    );

    say("toolrunner dev");
    const broker = await serve(running, folder, ["dev", "--port", "0", "--grpc-port", "0"]);
    print(`broker at ${broker.http}, runners at ${broker.ws} and ${broker.grpc}`);

    say("toolrunner run workspace.ts");
    const runner = await serve(running, folder, ["run", module]);
    print(`runner ${runner.runner_id} serves ${runner.handlers.map(({ tool }) => tool).join(", ")}`);

    const args = JSON.stringify({ path: "package.json", limit: 12 });
    say(`toolrunner call read --toolset workspace --args '${args}'`);
    const call = await ask(folder, ["call", "read", "--toolset", "workspace", "--args", args]);
    print(`${call.id}: ${call.state}`);
    print(resultText(call));

    say(`toolrunner calls events ${call.id}`);
    const events = await ask(folder, ["calls", "events", call.id]);
    for (const { seq, at, event } of events.data) print(`${seq}  ${at}  ${event}`);
    return call.state === "succeeded" ? 0 : 1;
  } finally {
    // The runner first: it then has a broker to give its last receipts to.
    for (const child of running.reverse()) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      child.kill("SIGTERM");
      await exited(child);
    }
    rmSync(folder, { recursive: true, force: true });
  }
}

function print(text) {
  process.stdout.write(`${text.replace(/^/gm, "    ")}\n`);
}

/** Starts a command that stays, and resolves with its ready line. */
async function serve(running, cwd, args) {
  const child = start(process.execPath, [TOOLRUNNER, ...args, "--json"], { cwd, stdio: ["ignore", "pipe", "inherit"] });
  running.push(child);
  const lines = createInterface({ input: child.stdout });
  let timer;
  try {
    return await new Promise((resolve, reject) => {
      timer = setTimeout(() => reject(new StepFailed(`toolrunner ${args[0]} was not ready within ${READY_MS / 1000} s`)), READY_MS);
      lines.on("line", (line) => {
        const message = JSON.parse(line);
        if (message.event === "ready") resolve(message);
      });
      child.once("error", reject);
      child.once("close", (code) => reject(new StepFailed(`toolrunner ${args[0]} ended with exit code ${code}`)));
    });
  } finally {
    clearTimeout(timer);
  }
}

/** Runs a command to its end and resolves with the JSON that it printed. */
async function ask(cwd, args) {
  const child = start(process.execPath, [TOOLRUNNER, ...args, "--json"], { cwd, stdio: ["ignore", "pipe", "inherit"] });
  let text = "";
  child.stdout.on("data", (chunk) => {
    text += chunk;
  });
  const code = await exited(child);
  if (text === "") throw new StepFailed(`toolrunner ${args[0]} ended with exit code ${code}`);
  return JSON.parse(text);
}

/** What `read` found: its text where the result has one, else the result as JSON. */
function resultText({ result, error }) {
  if (error !== null) return `${error.code}: ${error.message}`;
  for (const text of [result, result?.text, result?.content]) if (typeof text === "string") return text;
  return JSON.stringify(result, null, 2);
}
