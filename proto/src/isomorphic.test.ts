import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";

/** Every module that `entry` reaches, and every package that those import. */
function reach(entry: string): { readonly files: string[]; readonly packages: string[] } {
  const files = new Set<string>();
  const packages = new Set<string>();
  const visit = (url: URL): void => {
    const path = fileURLToPath(url);
    if (files.has(path)) return;
    files.add(path);
    for (const [, specifier = ""] of readFileSync(path, "utf8").matchAll(/(?:from|import)\s*\(?\s*"([^"]+)"/g)) {
      if (specifier.startsWith(".")) visit(new URL(specifier, url));
      else packages.add(specifier);
    }
  };
  visit(new URL(entry, import.meta.url));
  return { files: [...files], packages: [...packages].sort() };
}

function withoutComments(code: string): string {
  return code.replace(/\/\*[\s\S]*?\*\/|\/\/.*$/gm, "");
}

describe("entries", () => {
  it("keep the root free of Node, grpc-js and everything else but the protobuf wire code, so that it runs in a browser (R1)", () => {
    const { files, packages } = reach("./index.js");
    expect(packages).toEqual(["@bufbuild/protobuf/wire"]);
    expect(files.length).toBeGreaterThan(10);
  });

  it("keep the services free of vitest and of protobuf's reflection", () => {
    expect(reach("./services.js").packages).toEqual(["@bufbuild/protobuf/wire", "@grpc/grpc-js"]);
  });

  it("use no global that only Node has without asking for it", () => {
    const { files } = reach("./index.js");
    const using = files.filter((file) => /\b(?:Buffer|process)\.[a-z]+\(?/.test(withoutComments(readFileSync(file, "utf8"))));
    expect(using).toEqual([]);
  });
});
