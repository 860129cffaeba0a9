/**
 * How large the SDK is in a page: `@toolrunner/runner-sdk` with `/browser`, bundled and minified as a product's build does it.
 *
 * `node bench/dist/bundle-size.js` prints it alone. The limits are what was measured and a fifth more: a change that brings something
 * in that does not belong there is found by the test beside this file.
 */
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { build } from "vite";

/** Largest sizes, in bytes. */
export const BUNDLE_LIMITS = { raw: 215_000, gzip: 56_500, brotli: 49_000 } as const;

/** A bundle. */
export interface Bundle {
  readonly code: string;
  /** Sizes in bytes, as served without and with compression. */
  readonly bytes: Readonly<Record<keyof typeof BUNDLE_LIMITS, number>>;
  /** The modules that are in it, the largest first: paths, and characters before minifying. */
  readonly modules: readonly { readonly path: string; readonly characters: number }[];
}

/** What a page with a tool of its own imports. */
const ENTRY = `export { createRunner, defineTool, ToolError } from "@toolrunner/runner-sdk";
export { connectWebSocket } from "@toolrunner/runner-sdk/browser";`;
const ENTRY_ID = "virtual:page";

/** Bundles the SDK, in memory. */
export async function bundleForPage(source: string = ENTRY): Promise<Bundle> {
  const built = await build({
    root: fileURLToPath(new URL("..", import.meta.url)),
    configFile: false,
    logLevel: "error",
    build: {
      write: false,
      minify: true,
      target: "es2022",
      modulePreload: false,
      rollupOptions: { input: ENTRY_ID, preserveEntrySignatures: "strict" },
    },
    plugins: [
      {
        name: "page-entry",
        resolveId: (id) => (id === ENTRY_ID ? id : undefined),
        load: (id) => (id === ENTRY_ID ? source : undefined),
      },
    ],
  });
  const [output] = Array.isArray(built) ? built : [built];
  if (output === undefined || !("output" in output)) throw new Error("vite built nothing");
  const chunks = output.output.filter((part) => part.type === "chunk");
  const code = chunks.map((chunk) => chunk.code).join("\n");
  const modules = chunks
    .flatMap((chunk) => Object.entries(chunk.modules))
    .map(([path, { renderedLength }]) => ({ path, characters: renderedLength }))
    .sort((a, b) => b.characters - a.characters);
  return {
    code,
    modules,
    bytes: {
      raw: Buffer.byteLength(code),
      gzip: gzipSync(code, { level: 9 }).length,
      brotli: brotliCompressSync(code, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } }).length,
    },
  };
}

/** The sizes beside their limits, one a line. */
export function bundleSizeLines({ bytes }: Bundle): readonly string[] {
  return (["raw", "gzip", "brotli"] as const).map(
    (kind) =>
      `${`browser SDK, ${kind === "raw" ? "minified" : kind}`.padEnd(24)} ${count(bytes[kind])} bytes (limit ${count(BUNDLE_LIMITS[kind])})`,
  );
}

const count = (value: number) => value.toLocaleString("en-US");

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  process.stdout.write(`${bundleSizeLines(await bundleForPage()).join("\n")}\n`);
}
