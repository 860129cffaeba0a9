import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { ERROR_CODES, isErrorCode } from "@toolrunner/proto";
import { describe, expect, it } from "vitest";

/** Sources of the broker, tests left out. */
const sources = fileURLToPath(new URL("../../src", import.meta.url));

/** Codes that are written out in a construction like `new BrokerError("code"`. */
function codesIn(folder: string, construction: RegExp): { readonly file: string; readonly code: string }[] {
  return readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts") && !name.endsWith(".test.ts") && !name.includes("testing"))
    .flatMap((name) => {
      const text = readFileSync(join(folder, name), "utf8");
      return [...text.matchAll(construction)].map(([, code]) => ({ file: name, code: code ?? "" }));
    });
}

describe("error codes that the domain writes out", () => {
  const refusals = codesIn(sources, /new BrokerError\(\s*"([^"]*)"/g);
  const settlements = codesIn(join(sources, "domain"), /(?:callError|plainError)\(\s*"([^"]*)"/g);

  it("are found where they are known to be", () => {
    const codes = [...refusals, ...settlements].map(({ code }) => code);
    for (const code of ["page_invalid", "index_away", "call_timed_out", "result_invalid", "attempts_exhausted", "forbidden"]) {
      expect(codes).toContain(code);
    }
  });

  it("are rows of the table in proto", () => {
    expect([...refusals, ...settlements].filter(({ code }) => !isErrorCode(code))).toEqual([]);
  });

  it("are refusals with an HTTP status where they refuse, and call errors where they settle a call", () => {
    for (const { file, code } of refusals) {
      expect(isErrorCode(code) && ERROR_CODES[code].http, `${code} in ${file}`).not.toBeNull();
    }
    for (const { file, code } of settlements) {
      expect(isErrorCode(code) && ERROR_CODES[code].type, `${code} in ${file}`).toBe("call_error");
    }
  });
});
