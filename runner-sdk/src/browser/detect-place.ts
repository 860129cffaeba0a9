/**
 * The place that a transport of this entry dials from: a page, or a worker that a page may tell about itself.
 *
 * Invariants: a service worker is refused, since the browser ends it between events and its calls with it; nothing listens to the
 * page before a runner watches, and nothing does after the last one stopped.
 */
import { RunnerConfigError } from "../core/errors.js";
import type { Place } from "../core/place.js";
import { createPagePlace } from "./page-place.js";
import { createWorkerPlace } from "./worker-place.js";

/** The place of this code. @throws RunnerConfigError in a service worker, and where there is no WebSocket. */
export function createBrowserPlace(): Place {
  if (isScope("ServiceWorkerGlobalScope")) {
    throw new RunnerConfigError(
      "place_unsupported",
      "a service worker cannot be a runner: the browser ends it between events, and the calls that run with it. Make the runner in a page or a worker",
    );
  }
  if (typeof WebSocket === "undefined") {
    throw new RunnerConfigError(
      "place_unsupported",
      "there is no WebSocket here: on Node import connectWebSocket from @toolrunner/runner-sdk/node",
    );
  }
  return typeof document === "undefined" ? createWorkerPlace() : createPagePlace(window, document);
}

function isScope(name: string): boolean {
  const scope: unknown = Reflect.get(globalThis, name);
  return typeof scope === "function" && globalThis instanceof scope;
}
