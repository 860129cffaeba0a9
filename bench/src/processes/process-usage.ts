/** What every process of a measurement answers about itself. */
import { writeFile } from "node:fs/promises";
import { Session } from "node:inspector/promises";
import type { MeasuredRole, Usage } from "./roles.js";

const SAMPLE_EVERY_US = 200;
const BYTES_PER_MIB = 1_048_576;

/** The part of a role that does not depend on what it does. */
export function processUsage(): MeasuredRole {
  let session: Session | undefined;
  return {
    usage(): Usage {
      const { user, system } = process.cpuUsage();
      return { cpuMs: (user + system) / 1_000, residentMiB: process.memoryUsage.rss() / BYTES_PER_MIB };
    },
    async profileStart() {
      session = new Session();
      session.connect();
      await session.post("Profiler.enable");
      await session.post("Profiler.setSamplingInterval", { interval: SAMPLE_EVERY_US });
      await session.post("Profiler.start");
    },
    async profileStop(file) {
      if (session === undefined) throw new Error("no profile was begun");
      const { profile } = await session.post("Profiler.stop");
      session.disconnect();
      session = undefined;
      await writeFile(file, JSON.stringify(profile));
    },
  };
}
