import { toolrunner } from "@toolrunner/runner-browser/vite";

export default {
  plugins: [toolrunner({ strict: true })],
  // All that the page loads are modules already: nothing has to be bundled, or kept in a cache, while developing.
  optimizeDeps: { noDiscovery: true },
  build: {
    outDir: "../dist/demo",
    emptyOutDir: true,
    modulePreload: { polyfill: false },
    target: "es2023",
    rollupOptions: { input: ["index.html", "worker.html"] },
  },
  worker: { format: "es" },
};
