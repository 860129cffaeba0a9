/** Test suites for sibling packages; imports vitest. */
export { type ConnectedChannels, describeFrameChannel } from "./testing/frame-channel-suite.js";
