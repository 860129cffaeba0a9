/**
 * The runner sessions of one gateway: hands channels to the session logic and ends them when the gateway stops.
 *
 * Invariants:
 * - a channel that was handed over is closed when its session ends, however it ends;
 * - after `stop` began no session is started, and when it resolves every channel is closed.
 */

import type { BrokerFrame, FrameChannel, RunnerFrame } from "@toolrunner/proto";
import type { Log } from "../../domain/ports/log.js";
import type { RunnerConnection, RunnerSessions } from "../../wire/operations.js";
import { describeUnexpected } from "./fault.js";

type RunnerChannel = FrameChannel<RunnerFrame, BrokerFrame>;

/** The sessions of one gateway. */
export interface LiveSessions {
  /** Whether `stop` was called: refuse new connections. */
  readonly stopping: boolean;
  /** How many channels are not closed yet. */
  readonly count: number;
  /** Serves the channel; a channel that comes after `stop` is closed with 4501. Never throws. */
  serve(channel: RunnerChannel, connection: RunnerConnection): void;
  /**
   * Waits up to `drainMs` milliseconds for the sessions to end by themselves, then closes the rest with 4501.
   * Idempotent; a later call with less time shortens the wait of the earlier one.
   */
  stop(options: { readonly drainMs: number }): Promise<void>;
}

/** Makes an empty set of sessions. */
export function createLiveSessions(options: { readonly sessions: RunnerSessions; readonly log: Log }): LiveSessions {
  const { sessions, log } = options;
  const channels = new Set<RunnerChannel>();
  let stopping = false;
  let emptied: (() => void) | undefined;

  async function run(channel: RunnerChannel, connection: RunnerConnection): Promise<void> {
    try {
      await sessions.serve(channel, connection);
      channel.close(1000);
    } catch (error) {
      const { error: text, stack } = describeUnexpected(error);
      log.error("runner_session_failed", { transport: channel.transport, error: text, stack });
      channel.close(4500, "the session failed inside the broker");
    }
    const close = await channel.closed;
    channels.delete(channel);
    log.debug("runner_channel_closed", { transport: channel.transport, code: close.code, by: close.by });
    if (channels.size === 0) emptied?.();
  }

  function closeAll(): void {
    for (const channel of channels) channel.close(4501, "the broker stops");
  }

  let empty: Promise<void> | undefined;
  return {
    get stopping() {
      return stopping;
    },
    get count() {
      return channels.size;
    },
    serve(channel, connection) {
      channels.add(channel);
      if (stopping) channel.close(4501, "the broker stops");
      void run(channel, connection);
    },
    async stop({ drainMs }) {
      stopping = true;
      empty ??= new Promise((resolve) => {
        emptied = resolve;
        if (channels.size === 0) resolve();
      });
      const timer = setTimeout(closeAll, drainMs);
      await empty;
      clearTimeout(timer);
    },
  };
}
