/** A channel whose sent frames are counted. */
import type { SessionMeter } from "../domain/ports/meter.js";
import type { RunnerChannel } from "./operations.js";

/** The same channel for its session: counts each frame once the transport took it. Without a meter it is `channel` itself. */
export function metered(channel: RunnerChannel, meter: SessionMeter | undefined): RunnerChannel {
  if (meter === undefined) {
    return channel;
  }
  const { transport } = channel;
  return {
    transport,
    closed: channel.closed,
    get bufferedBytes() {
      return channel.bufferedBytes;
    },
    drained: () => channel.drained(),
    send(frame) {
      channel.send(frame);
      meter.frameSent(transport, frame.frame?.$case ?? "unknown");
    },
    close: (code, reason) => channel.close(code, reason),
    [Symbol.asyncIterator]: () => channel[Symbol.asyncIterator](),
  };
}
