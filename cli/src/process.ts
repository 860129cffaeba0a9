/** Joins the commands to a real process: streams, signals, exit code. */
import { text } from "node:stream/consumers";
import type { CliIo } from "./io.js";
import { runCli } from "./run-cli.js";

/** Runs the command of this process's arguments and ends the process. */
export async function runProcess(): Promise<void> {
  // The gRPC library prints its own lines on standard error, which is for ours; it reads this when it is loaded.
  process.env["GRPC_VERBOSITY"] ??= "NONE";
  // A reader that went away, as in `toolrunner calls | head -1`, is no fault.
  process.stdout.on("error", (cause: NodeJS.ErrnoException) => process.exit(cause.code === "EPIPE" ? 0 : 1));
  process.stderr.on("error", () => undefined);
  const exitCode = await runCli(process.argv.slice(2), processIo());
  await Promise.all([flushed(process.stdout), flushed(process.stderr)]);
  // Whatever is still open (a keep-alive socket, a module's own timer) must not keep a finished command.
  process.exit(exitCode);
}

function flushed(stream: NodeJS.WriteStream): Promise<void> {
  return new Promise((resolve) => {
    stream.write("", () => resolve());
  });
}

function processIo(): CliIo {
  return {
    out: (chunk) => void process.stdout.write(chunk),
    err: (chunk) => void process.stderr.write(chunk),
    readStdin: () => text(process.stdin),
    env: process.env,
    cwd: process.cwd(),
    onStopSignal: (listener) => {
      process.on("SIGTERM", listener);
      process.on("SIGINT", listener);
      return () => {
        process.off("SIGTERM", listener);
        process.off("SIGINT", listener);
      };
    },
  };
}
