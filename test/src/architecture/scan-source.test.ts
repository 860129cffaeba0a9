import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { scanSource } from "./scan-source.js";

const found = (source: string): readonly (readonly [string, string, ...string[]])[] =>
  scanSource(source).imports.map(({ specifier, kind, names }) => [specifier, kind, ...names]);

describe("scanSource", () => {
  it("finds every form in which a module names another", () => {
    expect(
      found(`
        import "side";
        import one from "default";
        import * as all from "star";
        import two, { three as four, type Five } from 'both';
        import type { Six } from "types";
        import type Seven from "type-default";
        export { eight, type Nine } from "again";
        export * from "everything";
        export * as named from "named-star";
        export type { Ten } from "type-again";
        const later = await import("later");
        type Eleven = import("in-a-type").Eleven;
        const old = require("old");
        new Worker(new URL("./worker.js", import.meta.url));
        new URL("../package.json", import.meta.url); new URL("", base); new URL("http://a/b.js");
        import {
          // a comment with from "nowhere"
          twelve,
        } from "lines";
      `),
    ).toEqual([
      ["side", "static"],
      ["default", "static", "default"],
      ["star", "static", "*"],
      ["both", "static", "default", "three", "Five"],
      ["types", "static", "Six"],
      ["type-default", "static", "default"],
      ["again", "static", "eight", "Nine"],
      ["everything", "static", "*"],
      ["named-star", "static", "*"],
      ["type-again", "static", "Ten"],
      ["later", "dynamic", "*"],
      ["in-a-type", "dynamic", "*"],
      ["old", "require", "*"],
      ["./worker.js", "url"],
      ["lines", "static", "twelve"],
    ]);
  });

  it("finds a specifier written as a template without parts", () => {
    expect(found("await import(`node:fs`)")).toEqual([["node:fs", "dynamic", "*"]]);
  });

  it("is not taken in by comments, strings, templates and regular expressions", () => {
    const source = [
      '// import "a";',
      '/* import "b"; */',
      "const c = 'import \"c\"';",
      'const d = "\\" import d from ";',
      // biome-ignore lint/suspicious/noTemplateCurlyInString: this text is a template in the source that is scanned
      'const e = `import "e"; ${[1].map((x) => `import "${x}"`)} import "f"`;',
      'const g = /import "g"/.test(text) && /[/"]/.test(x);',
      "const half = total / 2; const h = 'from \"h\"' / 2;",
      "obj.import('i'); obj.require('j'); important('k');",
      'import real from "real";',
    ].join("\n");
    expect(found(source)).toEqual([["real", "static", "default"]]);
    expect(scanSource(source).imports[0]?.line).toBe(9);
    expect(scanSource(source).comments.map(({ line }) => line)).toEqual([1, 2]);
  });

  it("goes on after a template with nested braces and templates", () => {
    // biome-ignore lint/suspicious/noTemplateCurlyInString: this text is a template in the source that is scanned
    expect(found("const a = `x ${{ b: `y ${c} z` }.b} w`; import after from 'after';")).toEqual([["after", "static", "default"]]);
  });

  it("keeps every line and offset, whatever the text", () => {
    fc.assert(
      fc.property(
        fc.array(
          fc.constantFrom(
            '"',
            "'",
            "`",
            "${",
            "}",
            "{",
            "/",
            "//",
            "/*",
            "*/",
            "\\",
            "\n",
            "import ",
            "from ",
            "a",
            " ",
            "[",
            "]",
            "(",
            ")",
          ),
        ),
        (parts) => {
          const source = parts.join("");
          const { masked } = scanSource(source);
          expect(masked.length).toBe(source.length);
          expect([...masked].map((character) => character === "\n")).toEqual([...source].map((character) => character === "\n"));
        },
      ),
    );
  });
});
