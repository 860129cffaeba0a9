import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { compilePattern, PatternError, PatternStepsError, PROGRAM_MAX } from "./compile-pattern.js";
import { PATTERN_CHARACTERS_MAX, PATTERN_DEPTH_MAX } from "./parse-pattern.js";

function agree(source: string, texts: readonly string[]): void {
  const native = new RegExp(source, "u");
  const ours = compilePattern(source);
  for (const text of texts) expect([source, text, ours.test(text)]).toEqual([source, text, native.test(text)]);
}

/** Patterns over a small alphabet, so that random texts often match; sizes stay where backtracking is harmless. */
const patterns: fc.Arbitrary<string> = fc.letrec<{ pattern: string; term: string; atom: string }>((tie) => ({
  pattern: fc.oneof(
    { depthSize: "small" },
    fc.array(tie("term"), { maxLength: 3 }).map((terms) => terms.join("")),
    fc.tuple(tie("pattern"), tie("pattern")).map(([left, right]) => `${left}|${right}`),
  ),
  term: fc.oneof(
    { depthSize: "small" },
    tie("atom"),
    fc
      .tuple(tie("atom"), fc.constantFrom("*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?", "{0}"))
      .map(([atom, quantifier]) => atom + quantifier),
    fc.constantFrom("^", "$", "\\b", "\\B"),
    fc.tuple(fc.constantFrom("(?=", "(?!", "(?<=", "(?<!"), tie("pattern")).map(([opening, inner]) => `${opening}${inner})`),
  ),
  atom: fc.oneof(
    { depthSize: "small" },
    fc.constantFrom(
      "a",
      "b",
      "-",
      ".",
      "\\w",
      "\\W",
      "\\d",
      "[ab]",
      "[^a]",
      "[\\w-]",
      "\\-".slice(1),
      "\\u0061",
      "\\u{1F600}",
      "\\p{L}",
      "😀",
      "[😀a]",
    ),
    fc.tuple(fc.constantFrom("(", "(?:", "(?<n>"), tie("pattern")).map(([opening, inner]) => `${opening}${inner})`),
  ),
})).pattern;
const plain = ["a", "b", "-", " ", "1", "é", "\n"];
const texts = (parts: readonly string[]) => fc.array(fc.constantFrom(...parts), { maxLength: 8 }).map((chosen) => chosen.join(""));

describe("compilePattern", () => {
  it("accepts exactly what the language's own engine accepts", () => {
    fc.assert(
      fc.property(patterns, fc.array(texts(plain), { minLength: 1, maxLength: 8 }), (source, samples) => {
        fc.pre(isValid(source));
        agree(source, samples);
      }),
      { numRuns: 3_000 },
    );
  });

  // Anchored: V8 also tries to start between the two halves of one character, which the language does not.
  it("accepts exactly what the language's own engine accepts, characters beyond 16 bits included", () => {
    fc.assert(
      fc.property(patterns, fc.array(texts([...plain, "😀", "\ud800"]), { minLength: 1, maxLength: 8 }), (pattern, samples) => {
        const source = `^(?:${pattern})`;
        fc.pre(isValid(source));
        agree(source, samples);
      }),
      { numRuns: 2_000 },
    );
  });

  it("ignores case where asked", () => {
    const pattern = compilePattern("^(?:[a-f]+x)*É$", { ignoreCase: true });
    expect(pattern.test("ABXcdxé")).toBe(true);
    expect(compilePattern("^(?:[a-f]+x)*É$").test("ABXcdxé")).toBe(false);
  });

  it.each([
    ["^[a-z]+(-[a-z]+)*$", ["abc", "abc-def", "abc-", "-", "", "a-b-c-d"]],
    ["^(?=.*[a-z])(?=.*\\d)(?!.*\\s).{8,}$", ["abcdefg1", "abcdefgh", "1234567a b", "", "a1a1a1a1"]],
    ["(?<=\\$)\\d+(?:\\.\\d\\d)?$", ["$12", "12", "$12.50", "€5"]],
    ["^(?:(?:25[0-5]|2[0-4]\\d|1?\\d?\\d)(?:\\.(?!$)|$)){4}$", ["127.0.0.1", "256.1.1.1", "1.2.3", "1.2.3.4."]],
    ["^\\p{Lu}\\p{Ll}*$", ["Äpfel", "apfel", "É", ""]],
    ["\\bcat\\b", ["a cat sat", "concat", "cat", "cats"]],
    ["", ["", "x"]],
    ["a||b", ["", "zzz"]],
    ["^(a|b)?c{2,3}$", ["cc", "acc", "bccc", "cccc", "c"]],
    ["[\\]\\\\^-]", ["]", "\\", "^", "-", "x"]],
    ["^.$", ["😀", "\n", "ab", "a"]],
    ["^\\u{1F600}\\uD83D\\uDE00$", ["😀😀", "😀"]],
  ])("agrees with the language's engine on %s", agree);

  it("takes patterns that are only valid without the unicode flag", () => {
    expect(compilePattern("^[\\w-.]+\\@x$").test("a-b.c@x")).toBe(true);
    expect(compilePattern("^a{,3}$").test("a{,3}")).toBe(true);
    expect(compilePattern("(x\\-y)+z").test("x-yz")).toBe(true);
  });

  it.each(["(", "[", "a**", "(?<n", "\\", "(?z)"])("refuses %j, which is no regular expression", (source) => {
    expect(() => compilePattern(source)).toThrow(PatternError);
  });

  it.each(["(a)\\1", "(?<n>a)\\k<n>", "^(.)\\1$"])("C9: refuses %s, which refers back", (source) => {
    expect(() => compilePattern(source)).toThrow(/references back/);
  });

  it("C9: refuses patterns that are too long, too deep, or unfold too far, at the limit", () => {
    expect(() => compilePattern("a".repeat(PATTERN_CHARACTERS_MAX + 1))).toThrow(PatternError);
    expect(compilePattern(`${"(".repeat(PATTERN_DEPTH_MAX)}a${")".repeat(PATTERN_DEPTH_MAX)}`).test("a")).toBe(true);
    expect(() => compilePattern(`${"(".repeat(PATTERN_DEPTH_MAX + 1)}a${")".repeat(PATTERN_DEPTH_MAX + 1)}`)).toThrow(/deep/);
    for (const source of ["((a{100}){100}){100}", "(((){4000}){4000}){4000}", `(ab){${PROGRAM_MAX + 1}}`, "(a{0,4000}){0,4000}"]) {
      expect(() => compilePattern(source)).toThrow(PatternError);
    }
  });

  it.each([
    "^(a+)+$",
    "^(a|a)*$",
    "^(a|aa)+$",
    "(a*)*b",
    "^(?:a?){30}a{30}$",
    "a*a*a*a*a*b",
    "(?=(a+)+$)b",
    "(?<=(a+)+)b",
    "^(([a-z])+.)+[A-Z]([a-z])+$",
    "(.*)(.*)(.*)(.*)[^a]$",
    "\\s+$|x",
    "^\\s*(.*?)\\s*x$",
  ])("C9: matches 100,000 characters against %s in bounded time", (source) => {
    const pattern = compilePattern(source);
    const startedAt = performance.now();
    pattern.test("a".repeat(100_000));
    pattern.test(" ".repeat(100_000));
    expect(performance.now() - startedAt).toBeLessThan(5_000);
  });

  it("C9: takes long bounded repetitions of one character, as length limits are written", () => {
    const pattern = compilePattern("^[a-z .]{1,20000}$");
    expect(pattern.test("a".repeat(20_000))).toBe(true);
    expect(pattern.test("a".repeat(20_001))).toBe(false);
  });

  it("C9: gives up with a typed error on a text that takes too many steps", () => {
    const pattern = compilePattern("(?:a?b?){500}c$");
    expect(() => pattern.test("ab".repeat(100_000))).toThrow(PatternStepsError);
  });
});

function isValid(source: string): boolean {
  try {
    new RegExp(source, "u");
    return true;
  } catch {
    return false;
  }
}
