import { defineConfig } from "vitest/config";

/** Tests run on what is built and published: `tsc -b` first. Each package is a project of its name. */
const packages = ["proto", "broker", "runner-sdk", "agent-sdk", "runners/backend", "runners/desktop", "runners/browser", "cli", "test"];

export default defineConfig({
  test: {
    projects: packages.map((root) => ({
      root,
      test: {
        name: root.replace("/", "-"),
        include: ["dist/**/*.test.js"],
        environment: "node",
        pool: "forks",
        testTimeout: 20_000,
      },
    })),
  },
});
