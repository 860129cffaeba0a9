/**
 * `grpc.health.v1.Health`: the same truth as `/readyz`, for every service of the broker alike. Needs no key.
 * Nothing is asked while nobody looks; watchers share one probe a second.
 */

import { type Server, status } from "@grpc/grpc-js";
import { service as healthService } from "grpc-health-check";
import { type HealthSource, problemsNow } from "../shared/health.js";
import type { Waits } from "../shared/waits.js";

/** How often watchers are told of a change at the latest. */
const PROBE_MS = 1_000;

type ServingStatus = "SERVING" | "NOT_SERVING" | "SERVICE_UNKNOWN";

interface HealthCall {
  readonly request: { readonly service: string };
}

interface HealthStream extends HealthCall {
  write(message: { readonly status: ServingStatus }): boolean;
  on(event: "cancelled" | "error" | "close", listener: () => void): unknown;
  end(): unknown;
}

type Answer = (error: { readonly code: status; readonly details: string } | null, value?: object) => void;

/** Adds the service. `services` are the names it knows besides the empty one. Returns the way to end all watches. */
export function addHealthService(server: Server, health: HealthSource, waits: Waits, services: readonly string[]): () => void {
  const known = new Set(["", ...services]);
  const watchers = new Map<HealthStream, ServingStatus>();
  let timer: NodeJS.Timeout | undefined;

  async function now(): Promise<ServingStatus> {
    return (await problemsNow(health, waits.draining)).length === 0 ? "SERVING" : "NOT_SERVING";
  }

  function tell(stream: HealthStream, serving: ServingStatus): void {
    if (watchers.get(stream) === serving) return;
    watchers.set(stream, serving);
    stream.write({ status: serving });
  }

  function forget(stream: HealthStream): void {
    watchers.delete(stream);
    if (watchers.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  }

  async function probe(): Promise<void> {
    const serving = await now();
    for (const stream of [...watchers.keys()]) if (known.has(stream.request.service)) tell(stream, serving);
  }

  server.addService(healthService, {
    check(call: HealthCall, answer: Answer) {
      if (!known.has(call.request.service)) {
        answer({ code: status.NOT_FOUND, details: "There is no such service here." });
        return;
      }
      void now().then((serving) => answer(null, { status: serving }));
    },
    list(_call: unknown, answer: Answer) {
      void now().then((serving) => answer(null, { statuses: Object.fromEntries([...known].map((name) => [name, { status: serving }])) }));
    },
    watch(stream: HealthStream) {
      for (const over of ["cancelled", "error", "close"] as const) stream.on(over, () => forget(stream));
      if (!known.has(stream.request.service)) {
        tell(stream, "SERVICE_UNKNOWN");
        return;
      }
      void now().then((serving) => tell(stream, serving));
      timer ??= setInterval(() => void probe(), PROBE_MS);
    },
  });

  return () => {
    for (const stream of [...watchers.keys()]) {
      forget(stream);
      stream.end();
    }
  };
}
