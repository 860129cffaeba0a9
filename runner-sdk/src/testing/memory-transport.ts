/** Joins a runner and whatever plays its broker in one process. */
import { type BrokerFrame, createMemoryChannelPair, type FrameChannel, type RunnerFrame } from "@toolrunner/proto";
import type { Transport } from "../core/transport.js";

/** The broker's end of a session's channel. */
export type BrokerChannel = FrameChannel<RunnerFrame, BrokerFrame>;

/**
 * A transport over memory pairs. For each attempt of the runner `connectFn` gets the broker's end and the credential, and
 * serves it; when it throws or rejects at once, the attempt fails with that error (a `ConnectError` decides about redials).
 */
export function memoryTransport(
  connectFn: (channel: BrokerChannel, options: { readonly credential: string; readonly sever: () => void }) => void | Promise<void>,
): Transport {
  return {
    name: "memory",
    carriesCredential: false,
    async connect({ credential }) {
      const pair = createMemoryChannelPair();
      await connectFn(pair.broker, { credential, sever: pair.sever });
      return pair.runner;
    },
  };
}
