import { beforeAll, describe, expect, it } from "vitest";
import { BUNDLE_LIMITS, type Bundle, bundleForPage, bundleSizeLines } from "./bundle-size.js";

/** Code from text, and what only Node has. */
const FORBIDDEN = [
  /\beval\s*\(/,
  /\bnew Function\b/,
  /\bFunction\s*\(/,
  /\brequire\s*\(/,
  /["'`]node:/,
  /\bprocess\.(?:env|on|exit)\b/,
  /\bBuffer\./,
];

let bundle: Bundle;
beforeAll(async () => {
  bundle = await bundleForPage();
}, 60_000);

describe("the SDK in a page (R1)", () => {
  it("is within its limits, raw and compressed", () => {
    for (const kind of ["raw", "gzip", "brotli"] as const) {
      expect(bundle.bytes[kind], `${kind}: ${bundleSizeLines(bundle).join(", ")}`).toBeLessThanOrEqual(BUNDLE_LIMITS[kind]);
      // What is far below is a bundle that lacks something, or a limit that no longer guards.
      expect(bundle.bytes[kind]).toBeGreaterThan(BUNDLE_LIMITS[kind] * 0.6);
    }
  });

  it("makes no code from text and needs nothing of Node", () => {
    expect(FORBIDDEN.filter((pattern) => pattern.test(bundle.code)).map(String)).toEqual([]);
  });

  it("holds no transport but the browser's own, no JSON frames, and no messages but those of a session", () => {
    const paths = bundle.modules.filter(({ characters }) => characters > 0).map(({ path }) => path.replaceAll("\\", "/"));
    expect(paths.length).toBeGreaterThan(30);
    const strangers = paths.filter((path) =>
      /\/ws\/|grpc|\/node\/|json-codec|frame-schema|file-descriptors|memory-channel|v1\/(?:calls|catalog)\.js|testing/.test(path),
    );
    expect(strangers).toEqual([]);
    expect(paths.filter((path) => path.includes("node_modules") && !/@bufbuild\/protobuf|node_modules\/idb\//.test(path))).toEqual([]);
  });

  it("would show what does not belong there", async () => {
    const other = await bundleForPage(
      'import { createWebSocketChannel } from "@toolrunner/proto"; export default [createWebSocketChannel, () => eval("1")];',
    );
    expect(FORBIDDEN.some((pattern) => pattern.test(other.code))).toBe(true);
    expect(other.modules.some(({ path, characters }) => path.includes("json-codec") && characters > 0)).toBe(true);
  }, 60_000);
});
