/**
 * Reads a regular expression of ECMA-262 into a tree. Only the structure is read here: what a single character must be
 * stays in the words of the pattern (`[a-z]`, `\p{L}`, `.`), for the engine of the language to decide.
 */
import { PatternError } from "./pattern-error.js";

export type PatternNode =
  /** One character; `source` is the class, escape or literal itself. */
  | { readonly kind: "character"; readonly source: string }
  | { readonly kind: "sequence"; readonly items: readonly PatternNode[] }
  | { readonly kind: "choice"; readonly options: readonly PatternNode[] }
  /** `max` may be Infinity. */
  | { readonly kind: "repeat"; readonly item: PatternNode; readonly min: number; readonly max: number }
  | { readonly kind: "assertion"; readonly assertion: "start" | "end" | "word" | "not_word" }
  | { readonly kind: "look"; readonly behind: boolean; readonly negative: boolean; readonly item: PatternNode };

/** Longest pattern, in characters. */
export const PATTERN_CHARACTERS_MAX = 8_192;
/** Deepest nesting of groups. */
export const PATTERN_DEPTH_MAX = 100;

/** The tree of `source`. Throws {@link PatternError} for what is no regular expression, is too large, or refers back to a group. */
export function parsePattern(source: string): PatternNode {
  if (source.length > PATTERN_CHARACTERS_MAX)
    throw new PatternError(`a regular expression of at most ${PATTERN_CHARACTERS_MAX} characters`);
  const unicode = compiles(source, "u");
  // Many schemas in use are only valid without the flag, such as those that escape more than they need to.
  if (!unicode && !compiles(source, "")) throw new PatternError("a regular expression of ECMA-262");
  return new PatternReader(source, unicode).read();
}

function compiles(source: string, flags: string): boolean {
  try {
    new RegExp(source, flags);
    return true;
  } catch {
    return false;
  }
}

const ASSERTIONS = { "^": "start", $: "end" } as const;
const QUANTIFIER = /\{(\d+)(?:(,)(\d*))?\}/y;
const LOOKS = [
  { opening: "(?=", behind: false, negative: false },
  { opening: "(?!", behind: false, negative: true },
  { opening: "(?<=", behind: true, negative: false },
  { opening: "(?<!", behind: true, negative: true },
] as const;

class PatternReader {
  #at = 0;
  #depth = 0;

  constructor(
    private readonly source: string,
    private readonly unicode: boolean,
  ) {}

  read(): PatternNode {
    const node = this.#choice();
    if (this.#at < this.source.length) throw new PatternError("a regular expression of ECMA-262");
    return node;
  }

  #choice(): PatternNode {
    const options = [this.#sequence()];
    while (this.source[this.#at] === "|") {
      this.#at += 1;
      options.push(this.#sequence());
    }
    const [only] = options;
    return options.length === 1 && only !== undefined ? only : { kind: "choice", options };
  }

  #sequence(): PatternNode {
    const items: PatternNode[] = [];
    for (let next = this.source[this.#at]; next !== undefined && next !== "|" && next !== ")"; next = this.source[this.#at]) {
      items.push(this.#quantified(this.#term(next)));
    }
    return { kind: "sequence", items };
  }

  #term(next: string): PatternNode {
    switch (next) {
      case "^":
      case "$":
        this.#at += 1;
        return { kind: "assertion", assertion: ASSERTIONS[next] };
      case "(":
        return this.#group();
      case "[":
        return this.#class();
      case "\\":
        return this.#escape();
      default: {
        const character = this.unicode ? String.fromCodePoint(this.source.codePointAt(this.#at) ?? 0) : next;
        this.#at += character.length;
        return { kind: "character", source: character };
      }
    }
  }

  #group(): PatternNode {
    this.#depth += 1;
    if (this.#depth > PATTERN_DEPTH_MAX) throw new PatternError(`a regular expression with groups at most ${PATTERN_DEPTH_MAX} deep`);
    const look = LOOKS.find(({ opening }) => this.source.startsWith(opening, this.#at));
    if (look !== undefined) this.#at += look.opening.length;
    else if (this.source.startsWith("(?:", this.#at)) this.#at += 3;
    else if (this.source.startsWith("(?<", this.#at)) this.#at = this.source.indexOf(">", this.#at) + 1;
    else if (this.source.startsWith("(?", this.#at)) throw new PatternError("a regular expression without inline flags");
    else this.#at += 1;
    const item = this.#choice();
    // The closing parenthesis: the language's own engine has seen that it is there.
    this.#at += 1;
    this.#depth -= 1;
    return look === undefined ? item : { kind: "look", behind: look.behind, negative: look.negative, item };
  }

  #class(): PatternNode {
    const from = this.#at;
    this.#at += 1;
    while (this.source[this.#at] !== "]") this.#at += this.source[this.#at] === "\\" ? 2 : 1;
    this.#at += 1;
    return { kind: "character", source: this.source.slice(from, this.#at) };
  }

  #escape(): PatternNode {
    const from = this.#at;
    const letter = this.source[from + 1] ?? "";
    if (letter === "b" || letter === "B") {
      this.#at += 2;
      return { kind: "assertion", assertion: letter === "b" ? "word" : "not_word" };
    }
    if (/[1-9]/.test(letter) || (letter === "k" && (this.unicode || this.source.includes("(?<")))) {
      throw new PatternError("a regular expression without references back to a group");
    }
    const rest = this.source.slice(from, from + 80);
    const long = (this.unicode ? UNICODE_ESCAPE : LEGACY_ESCAPE).exec(rest)?.[0];
    const source = long ?? `\\${this.unicode ? String.fromCodePoint(this.source.codePointAt(from + 1) ?? 0) : letter}`;
    this.#at += source.length;
    return { kind: "character", source };
  }

  #quantified(item: PatternNode): PatternNode {
    const bounds = this.#bounds();
    if (bounds === undefined) return item;
    // Greedy or not makes no difference to whether a text matches.
    if (this.source[this.#at] === "?") this.#at += 1;
    return { kind: "repeat", item, ...bounds };
  }

  #bounds(): { min: number; max: number } | undefined {
    const sign = this.source[this.#at];
    if (sign === "*" || sign === "+" || sign === "?") {
      this.#at += 1;
      return { min: sign === "+" ? 1 : 0, max: sign === "?" ? 1 : Number.POSITIVE_INFINITY };
    }
    if (sign !== "{") return undefined;
    QUANTIFIER.lastIndex = this.#at;
    const match = QUANTIFIER.exec(this.source);
    if (match === null) return undefined;
    this.#at += match[0].length;
    const min = Number(match[1]);
    return { min, max: match[2] === undefined ? min : match[3] === "" ? Number.POSITIVE_INFINITY : Number(match[3]) };
  }
}

const UNICODE_ESCAPE =
  /^\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u\{[0-9a-fA-F]+\}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|c[A-Za-z]|[pP]\{[^}]*\})/;
const LEGACY_ESCAPE = /^\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|c[A-Za-z]|0[0-7]{0,2})/;
