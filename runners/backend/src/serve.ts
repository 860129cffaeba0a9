/**
 * The workspace tools as a module that `toolrunner run` can load: `toolrunner run @toolrunner/runner-backend/workspace`, or a
 * file of one line that exports it again.
 *
 * The root is `TOOLRUNNER_WORKSPACE_ROOT`, else the current folder.
 */
import { workspaceTools } from "./workspace-tools.js";

const configured = process.env["TOOLRUNNER_WORKSPACE_ROOT"];

// `toolrunner run` takes the default export of a module.
export default workspaceTools({ root: configured === undefined || configured === "" ? process.cwd() : configured });
