import { availableParallelism } from "node:os";
import { defineConfig } from "vitest/config";

/** Tests run on what is built and published: `tsc -b` first. Each package is a project of its name. */
const packages = [
  "proto",
  "broker",
  "runner-sdk",
  "agent-sdk",
  "runners/backend",
  "runners/desktop",
  "runners/browser",
  "cli",
  "test",
  "bench",
];

const common = { environment: "node", pool: "forks", testTimeout: 20_000, hookTimeout: 30_000 } as const;

export default defineConfig({
  test: {
    // By default one less than there are cores. Most files wait for servers, timers and processes, not for a processor.
    maxWorkers: Math.max(3, availableParallelism()),
    projects: [
      ...packages.map((root) => ({ root, test: { ...common, name: root.replace("/", "-"), include: ["dist/**/*.test.js"] } })),
      { root: "scripts", test: { ...common, name: "scripts", include: ["*.test.mjs"] } },
    ],
  },
});
