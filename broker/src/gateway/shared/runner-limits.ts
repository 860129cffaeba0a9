/** Bounds of the channels of runners, of which a broker has thousands: what one of them may make it hold. */
import type { ChannelLimits } from "@toolrunner/proto";

/**
 * Twice a frame may be unread on its way in, and sixteen on its way out. Grants stop far below that (`wire/session-pressure`): what
 * comes near it are acknowledgements and revokes for a runner that reads nothing, and it is closed with 4502.
 */
export const RUNNER_CHANNEL_LIMITS: ChannelLimits = { inboundHighBytes: 2 * 1_048_576, outboundMaxBytes: 16 * 1_048_576 };
