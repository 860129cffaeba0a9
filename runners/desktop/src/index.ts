export { type DesktopRunnerOptions, type DesktopToolsOptions, desktopTools, onlyFor, startDesktopRunner } from "./desktop-runner.js";
