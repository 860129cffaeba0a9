export { createWorkspace, RESULT_CONTEXT_BYTES, type Workspace, type WorkspaceOptions, workspaceTools } from "./workspace-tools.js";
