export { CALL_STATES } from "./domain/call-view.js";
