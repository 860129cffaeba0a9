/** The one entry of the root's npm scripts: `node scripts/run.mjs JOB`. Does on a fresh clone whatever JOB needs first. */
import { forwardSignals, StepFailed, setUp } from "./set-up.mjs";

const JOBS = {
  build: async () => {
    await setUp();
    return 0;
  },
  demo: async () => {
    await setUp();
    return (await import("./demo.mjs")).demo();
  },
  test: async () => {
    await setUp({ nats: true, chromium: true });
    return (await import("./test-job.mjs")).test({ long: false });
  },
  "test:long": async () => {
    await setUp({ nats: true, chromium: true });
    return (await import("./test-job.mjs")).test({ long: true });
  },
  verify: async () => {
    await setUp({ nats: true, chromium: true });
    return (await import("./verify-job.mjs")).verify();
  },
  bench: async (args) => {
    await setUp({ nats: true });
    return (await import("./bench-job.mjs")).bench(args);
  },
  conformance: async (args) => {
    await setUp();
    return (await import("./conformance-job.mjs")).conformance(args);
  },
  chaos: async (args) => {
    await setUp({ nats: true });
    return (await import("./chaos-job.mjs")).chaos(args);
  },
};

const [job = "", ...rest] = process.argv.slice(2);
if (!Object.hasOwn(JOBS, job)) {
  process.stderr.write(`node scripts/run.mjs ${Object.keys(JOBS).join("|")}\n`);
  process.exit(2);
}
forwardSignals();
try {
  const code = await JOBS[job](rest);
  process.exitCode ||= code;
} catch (cause) {
  process.stderr.write(`${cause instanceof StepFailed ? cause.message : (cause?.stack ?? cause)}\n`);
  process.exitCode ||= 1;
}
