/**
 * Reads JSON that comes in pieces: is it JSON, and how deep is it nested? Nothing of it is kept, and no value is built, so it takes
 * memory for the open brackets only, and as much time for each piece as the piece is long.
 *
 * Invariant: what it calls JSON is what `JSON.parse` takes, whatever the pieces are cut into.
 */
import { RESULT_DEPTH_MAX } from "./limits.js";

/** What was read so far: JSON up to here, or never any more. */
export type JsonScanResult = "json" | "not_json" | "too_deep";

type NumberPart = "begin" | "minus" | "zero" | "whole" | "point" | "fraction" | "e" | "sign" | "exponent";

type Place =
  /** A value has to come. */
  | "value"
  /** After `[`: a value, or its end. */
  | "first"
  /** After `{`: a key, or its end. */
  | "first_key"
  | "key"
  | "colon"
  /** After a value. */
  | "after"
  | "text"
  | "escape"
  | "unicode"
  | "word"
  | "number";

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const ESCAPES: ReadonlySet<number> = new Set([...'"\\/bfnrt'].map((letter) => letter.charCodeAt(0)));
const SPACES: ReadonlySet<number> = new Set([0x20, 0x09, 0x0a, 0x0d]);
const WORDS: ReadonlyMap<number, string> = new Map(["true", "false", "null"].map((word) => [word.charCodeAt(0), word]));

/** See the module's header. */
export class JsonScan {
  #place: Place = "value";
  /** 1 for each open object, 0 for each open array. */
  readonly #open = new Uint8Array(RESULT_DEPTH_MAX);
  #depth = 0;
  /** The text that is read is a key. */
  #isKey = false;
  #word = "";
  #wordAt = 0;
  readonly #number = new NumberForm();
  #fault: "not_json" | "too_deep" | undefined;

  /** Reads the next piece. */
  push(piece: string): void {
    const { length } = piece;
    for (let at = 0; at < length && this.#fault === undefined; ) {
      at = this.#place === "text" ? this.#readText(piece, at) : this.#readUnit(piece.charCodeAt(at), at);
    }
  }

  /** What it is when nothing more comes. */
  end(): JsonScanResult {
    if (this.#fault !== undefined) {
      return this.#fault;
    }
    const isWhole = this.#depth === 0 && (this.#place === "after" || (this.#place === "number" && this.#number.isWhole));
    return isWhole ? "json" : "not_json";
  }

  /** Most of most results: read without looking at each unit's place. */
  #readText(piece: string, from: number): number {
    for (let at = from; at < piece.length; at += 1) {
      const unit = piece.charCodeAt(at);
      if (unit === QUOTE) {
        this.#place = this.#isKey ? "colon" : "after";
        return at + 1;
      }
      if (unit === BACKSLASH) {
        this.#place = "escape";
        return at + 1;
      }
      if (unit < 0x20) {
        this.#fault = "not_json";
        return at;
      }
    }
    return piece.length;
  }

  /** Takes one unit; the place of the next one. */
  #readUnit(unit: number, at: number): number {
    switch (this.#place) {
      case "value":
      case "first":
      case "first_key":
      case "key":
        if (!SPACES.has(unit)) {
          this.#begin(unit);
        }
        return at + 1;
      case "colon":
        if (unit === COLON) {
          this.#place = "value";
        } else if (!SPACES.has(unit)) {
          this.#fault = "not_json";
        }
        return at + 1;
      case "after":
        if (!SPACES.has(unit)) {
          this.#goOn(unit);
        }
        return at + 1;
      case "escape":
        if (unit === 0x75) {
          this.#place = "unicode";
          this.#wordAt = 0;
        } else if (ESCAPES.has(unit)) {
          this.#place = "text";
        } else {
          this.#fault = "not_json";
        }
        return at + 1;
      case "unicode":
        this.#wordAt += 1;
        if (!isHexadecimal(unit)) {
          this.#fault = "not_json";
        } else if (this.#wordAt === 4) {
          this.#place = "text";
        }
        return at + 1;
      case "word":
        if (this.#word.charCodeAt(this.#wordAt) !== unit) {
          this.#fault = "not_json";
        }
        this.#wordAt += 1;
        if (this.#wordAt === this.#word.length) {
          this.#place = "after";
        }
        return at + 1;
      case "number":
        if (this.#number.take(unit)) {
          return at + 1;
        }
        if (!this.#number.isWhole) {
          this.#fault = "not_json";
        }
        this.#place = "after";
        return at;
      case "text":
        return at;
    }
  }

  #begin(unit: number): void {
    const place = this.#place;
    const wantsKey = place === "key" || place === "first_key";
    if ((unit === CLOSE_ARRAY && place === "first") || (unit === CLOSE_OBJECT && place === "first_key")) {
      this.#close();
    } else if (unit === QUOTE) {
      this.#isKey = wantsKey;
      this.#place = "text";
    } else if (wantsKey) {
      this.#fault = "not_json";
    } else if (unit === OPEN_ARRAY || unit === OPEN_OBJECT) {
      this.#openOne(unit === OPEN_OBJECT);
    } else {
      this.#beginPlain(unit);
    }
  }

  #beginPlain(unit: number): void {
    const word = WORDS.get(unit);
    if (word !== undefined) {
      this.#word = word;
      this.#wordAt = 1;
      this.#place = "word";
      return;
    }
    this.#number.reset();
    this.#place = "number";
    if (!this.#number.take(unit)) {
      this.#fault = "not_json";
    }
  }

  #openOne(isObject: boolean): void {
    if (this.#depth === RESULT_DEPTH_MAX) {
      this.#fault = "too_deep";
      return;
    }
    this.#open[this.#depth] = isObject ? 1 : 0;
    this.#depth += 1;
    this.#place = isObject ? "first_key" : "first";
  }

  #close(): void {
    this.#depth -= 1;
    this.#place = "after";
  }

  #goOn(unit: number): void {
    const isObject = this.#depth > 0 ? this.#open[this.#depth - 1] === 1 : undefined;
    if (isObject !== undefined && unit === COMMA) {
      this.#place = isObject ? "key" : "value";
    } else if ((isObject === true && unit === CLOSE_OBJECT) || (isObject === false && unit === CLOSE_ARRAY)) {
      this.#close();
    } else {
      this.#fault = "not_json";
    }
  }
}

/** The form of a number, digit by digit. */
class NumberForm {
  #part: NumberPart = "begin";

  /** Another number begins. */
  reset(): void {
    this.#part = "begin";
  }

  /** May it end here? */
  get isWhole(): boolean {
    return this.#part === "zero" || this.#part === "whole" || this.#part === "fraction" || this.#part === "exponent";
  }

  /** False: this unit is not part of it. */
  take(unit: number): boolean {
    const isDigit = unit >= 0x30 && unit <= 0x39;
    const next = isDigit ? this.#digit(unit === 0x30) : this.#sign(unit);
    if (next === undefined) {
      return false;
    }
    this.#part = next;
    return true;
  }

  #digit(isZero: boolean): NumberPart | undefined {
    switch (this.#part) {
      case "begin":
      case "minus":
        return isZero ? "zero" : "whole";
      case "zero":
        return undefined;
      case "whole":
        return "whole";
      case "point":
      case "fraction":
        return "fraction";
      case "e":
      case "sign":
      case "exponent":
        return "exponent";
    }
  }

  #sign(unit: number): NumberPart | undefined {
    const { isWhole } = this;
    switch (unit) {
      case 0x2d:
        return this.#part === "begin" ? "minus" : this.#part === "e" ? "sign" : undefined;
      case 0x2b:
        return this.#part === "e" ? "sign" : undefined;
      case 0x2e:
        return this.#part === "zero" || this.#part === "whole" ? "point" : undefined;
      case 0x65:
      case 0x45:
        return isWhole && this.#part !== "exponent" ? "e" : undefined;
      default:
        return undefined;
    }
  }
}

function isHexadecimal(unit: number): boolean {
  return (unit >= 0x30 && unit <= 0x39) || (unit >= 0x41 && unit <= 0x46) || (unit >= 0x61 && unit <= 0x66);
}
