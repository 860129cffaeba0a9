/**
 * One process of the run that can be killed, stopped, woken and restarted, and that something always starts again.
 *
 * Invariant: an end that nobody asked for is an alarm. A start that fails is none: what it needs may be away.
 */
import { type Child, startChild } from "./child.js";
import type { Alarm } from "./history.js";

export interface Member {
  readonly name: string;
  /** Of the present process; undefined while there is none. */
  readonly pid: number | undefined;
  /** It runs, is ready and not stopped. */
  readonly healthy: boolean;
  /** SIGKILL. Resolves when it is gone. */
  kill(): Promise<void>;
  /** SIGSTOP. */
  pause(): void;
  /** SIGCONT. */
  resume(): void;
  /** SIGTERM; killed when it has not ended after 40 s, which is an alarm. */
  terminate(): Promise<void>;
  /** Starts it, as often as needed, until it is ready. Rejects after 90 s. */
  ensureUp(): Promise<void>;
}

export interface ChildMemberOptions {
  readonly name: string;
  readonly args: readonly string[];
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  readonly logFile: string;
  readonly alarm: (alarm: Alarm) => void;
}

const UP_MS = 90_000;
const TERMINATE_MS = 40_000;
const AGAIN_MS = 500;

/** A member that is a Node process. It does not run yet. */
export function createChildMember(options: ChildMemberOptions): Member {
  let child: Child | undefined;
  let paused = false;
  let ready = false;
  let expected = false;

  async function start(): Promise<void> {
    const started = startChild(options);
    child = started;
    paused = false;
    expected = false;
    void started.exited.then((code) => {
      if (child !== started) return;
      if (ready && !expected) options.alarm({ process: options.name, event: `ended by itself with code ${code}`, call: null });
      child = undefined;
      ready = false;
    });
    await started.ready;
    ready = child === started;
  }
  async function end(signal: NodeJS.Signals): Promise<void> {
    const ending = child;
    if (ending === undefined) return;
    expected = true;
    ready = false;
    ending.signal(signal);
    ending.signal("SIGCONT");
    await ending.exited;
  }
  return {
    name: options.name,
    get pid() {
      return child?.pid;
    },
    get healthy() {
      return ready && !paused;
    },
    kill: () => end("SIGKILL"),
    pause() {
      if (child === undefined) return;
      paused = true;
      child.signal("SIGSTOP");
    },
    resume() {
      paused = false;
      child?.signal("SIGCONT");
    },
    async terminate() {
      const ending = child;
      const late = setTimeout(() => {
        options.alarm({ process: options.name, event: `did not end within ${TERMINATE_MS} ms of SIGTERM`, call: null });
        ending?.signal("SIGKILL");
      }, TERMINATE_MS);
      await end("SIGTERM");
      clearTimeout(late);
    },
    async ensureUp() {
      const until = performance.now() + UP_MS;
      while (!ready) {
        try {
          if (child === undefined) await start();
          else await child.ready;
        } catch (cause) {
          if (performance.now() > until) throw new Error(`${options.name} does not start`, { cause });
          await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
        }
      }
    },
  };
}
