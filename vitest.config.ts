import { defineConfig } from "vitest/config";

/** Tests run on what is built and published: `tsc -b` first. Each package is a project of its name. */
const packages = ["proto", "broker", "runner-sdk", "agent-sdk", "runners/backend", "runners/desktop", "runners/browser", "cli", "test"];

const common = { environment: "node", pool: "forks", testTimeout: 20_000, hookTimeout: 30_000 } as const;

export default defineConfig({
  test: {
    projects: [
      ...packages.map((root) => ({ root, test: { ...common, name: root.replace("/", "-"), include: ["dist/**/*.test.js"] } })),
      { root: "scripts", test: { ...common, name: "scripts", include: ["*.test.mjs"] } },
    ],
  },
});
