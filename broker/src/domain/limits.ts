/** Every limit has its one constant here; its typed error and the test at its edge are found by name. */

export const ARGUMENTS_BYTES_MAX = 262_144;
/** A result that travels in one frame: 1 MiB less 64 KiB for the frame's other fields. */
export const RESULT_BYTES_MAX = 1_048_576 - 65_536;
/** A result that travels in chunks, unless the broker is told otherwise; the most that it can be told. */
export const RESULT_CHUNKED_BYTES_MAX = 16_777_216;
/** The smallest limit of results that a broker can be given. */
export const RESULT_LIMIT_BYTES_MIN = 1_024;
/** The text of one chunk: in the JSON encoding each byte may become two. */
export const CHUNK_BYTES_MAX = 393_216;
/** Chunks of one session that are held until their receipt is stored. */
export const SESSION_CHUNKS_BYTES_MAX = 2 * RESULT_CHUNKED_BYTES_MAX;
/** Chunks of all sessions of a broker. */
export const CHUNKS_BYTES_MAX = 8 * RESULT_CHUNKED_BYTES_MAX;
/** Levels of nesting of a result, a handle or the data of progress: deeper ones overflow the stack of whoever writes them as JSON. */
export const RESULT_DEPTH_MAX = 512;
export const FRAME_BYTES_MAX = 1_048_576;
/** Results up to this size are part of the call object; larger ones are read by `result_ref`. */
export const RESULT_INLINE_BYTES_MAX = 262_144;
export const RESULT_PAGE_BYTES_DEFAULT = 65_536;
export const RESULT_PAGE_BYTES_MAX = 262_144;
export const BODY_BYTES_MAX = 8_388_608;
export const TOOLS_PER_TOOLSET_MAX = 64;
export const SCOPES_PER_TOOL_MAX = 32;
export const SCHEMA_BYTES_MAX = 65_536;
export const SCHEMA_DEPTH_MAX = 64;
export const MODEL_RESULT_BYTES_MIN = 1_024;
export const MODEL_RESULT_BYTES_MAX = 32_768;
export const MODEL_RESULT_BYTES_DEFAULT = 16_384;
export const TIMEOUT_SECONDS_MIN = 5;
export const TIMEOUT_SECONDS_MAX = 86_400;
export const TIMEOUT_SECONDS_DEFAULT = 300;
export const WAIT_SECONDS_MAX = 60;
export const ATTEMPTS_MAX = 10;
export const ATTEMPTS_DEFAULT = 3;
/** How long a submitted call waits for its final receipt where its tool does not say. */
export const SUBMISSION_TIMEOUT_SECONDS_DEFAULT = 604_800;
export const SUBMISSION_TIMEOUT_SECONDS_MIN = 5;
/** 30 days: runners keep what they submitted for as long. */
export const SUBMISSION_TIMEOUT_SECONDS_MAX = 2_592_000;
/** Updates of a submitted call that are stored; its final receipt is taken all the same. */
export const UPDATES_PER_CALL_MAX = 1_000;
export const BATCH_CALLS_MAX = 64;
/** As many calls as a batch holds, each with arguments at their limit, and a KiB for the other fields of each. */
export const BATCH_BODY_BYTES_MAX = BATCH_CALLS_MAX * (262_144 + 1_024);
/** Creations of one batch that are under way at once. */
export const BATCH_CREATIONS_AT_ONCE = 16;
/** Settled calls are kept for this long, unless the broker is told otherwise. */
export const RETENTION_MS_DEFAULT = 604_800_000;
export const RETENTION_MS_MIN = 1_000;
/** Ten years: longer is for ever. */
export const RETENTION_MS_MAX = 315_360_000_000;
export const PROGRESS_EVENTS_PER_ATTEMPT_MAX = 1_000;
/** Grants of a call whose late receipts are still known for its own; older ones were declined long ago. */
export const GRANTS_REMEMBERED = 64;
/** Late receipts of a call that are kept as evidence. */
export const EVIDENCE_PER_CALL_MAX = 64;
/** Questions to reconcile handlers about one grant that follow by themselves, and those that every new connection of the runner adds up to. */
export const RECONCILE_ASKS_BY_TIME_MAX = 5;
export const RECONCILE_ASKS_MAX = 64;
/** Longest message of a runner's error that is stored, in characters; the rest is cut. */
export const ERROR_MESSAGE_CHARACTERS_MAX = 8_192;
/** Most details of a runner's error that are stored. */
export const ERROR_DETAILS_MAX = 100;
export const PROGRESS_BYTES_MAX = 16_384;
export const IDEMPOTENCY_KEY_CHARACTERS_MAX = 256;
/** Highest limit of concurrency or queue that a binding or tool can have. */
export const LIMIT_MAX = 1_000_000;
export const SLOTS_MAX = 1_024;
export const HANDLERS_PER_RUNNER_MAX = 1_024;
export const ID_PATTERN = /^[a-z][a-z0-9_-]{0,63}$/;
export const TOOL_NAME_PATTERN = /^[A-Za-z][A-Za-z0-9_.-]{0,63}$/;
