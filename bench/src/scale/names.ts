/** Names that the processes of the measurements at scale share. */

/** Tools of idle runners: nobody calls them. */
export const IDLE_TOOLS = ["read_file", "write_file", "list_files", "run_command", "search"] as const;
/** A tool whose calls are kept waiting, or running. */
export const HOLD_TOOL = "hold";
/** A tool whose calls wait for capacity. */
export const LANE_TOOL = "lane";
export const SCALE_TOOLSET = "scale";
export const TOOL_VERSION = "1";
/** Far longer than a measurement: no call times out. */
export const TIMEOUT_SECONDS = 7_200;
