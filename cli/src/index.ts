export { EXIT, type ExitCode } from "./errors.js";
export type { CliIo } from "./io.js";
export { runCli } from "./run-cli.js";
