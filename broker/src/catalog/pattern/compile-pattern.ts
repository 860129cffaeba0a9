/**
 * Matching that no pattern and no text can make run away (features.md C9).
 *
 * A backtracking engine takes exponential time for `^(a+)+$` and cubic time for harmless looking patterns on long texts.
 * Here a pattern is followed in all its ways at once, one character after the other: steps grow with length of text times
 * size of pattern, and are counted.
 *
 * Invariants:
 * 1. A text is accepted exactly when the language's own engine accepts it with flag `u` (by code points).
 * 2. The language's engine sees a whole text only for patterns that it can match in time linear in the text.
 * 3. Look-ahead and look-behind are answered for all places by one pass each, so they do not multiply.
 */
import { type PatternNode, parsePattern } from "./parse-pattern.js";
import { PatternError, PatternStepsError } from "./pattern-error.js";

export { PatternError, PatternStepsError } from "./pattern-error.js";

export interface CompiledPattern {
  /** Whether the pattern matches anywhere in `text`. Throws {@link PatternStepsError} past {@link STEPS_MAX} steps. */
  test(text: string): boolean;
  /** What it takes in memory, in parts; 0 when the language's engine does the matching. */
  readonly parts: number;
  /** The pattern's source. */
  toString(): string;
}

/** Most parts of a pattern once its repetitions are unfolded; a part comes to one or two instructions. */
export const PROGRAM_MAX = 8_000;
/** Most steps for one text, about half a second. */
export const STEPS_MAX = 30_000_000;
/** Ways through the choices of a pattern that the language's engine may be left to try. */
const NATIVE_WAYS_MAX = 64;

export interface PatternOptions {
  /** Default false, as in JSON Schema. */
  readonly ignoreCase?: boolean | undefined;
}

/** Compiles `source`. Throws {@link PatternError} when it is no regular expression, too large, or refers back to a group. */
export function compilePattern(source: string, { ignoreCase = false }: PatternOptions = {}): CompiledPattern {
  const tree = parsePattern(source);
  if (isLinearForBacktracking(tree)) {
    const native = toRegExp(source, ignoreCase);
    return { test: (text) => native.test(text), parts: 0, toString: () => source };
  }
  const machine = new Compiler(ignoreCase).compile(tree);
  return { test: (text) => run(machine, text), parts: machine.parts, toString: () => source };
}

/**
 * Whether backtracking is harmless: anchored at the start, at most one repetition of varying length, none of a group,
 * and few choices.
 */
function isLinearForBacktracking(tree: PatternNode): boolean {
  const [first] = tree.kind === "sequence" ? tree.items : [tree];
  if (first?.kind !== "assertion" || first.assertion !== "start") return false;
  let ways = 1;
  let varying = 0;
  const visit = (node: PatternNode): boolean => {
    switch (node.kind) {
      case "character":
      case "assertion":
        return true;
      case "sequence":
        return node.items.every(visit);
      case "choice":
        ways *= node.options.length;
        return ways <= NATIVE_WAYS_MAX && node.options.every(visit);
      case "repeat":
        if (node.min !== node.max) varying += 1;
        return node.item.kind === "character" && varying <= 1;
      case "look":
        return false;
    }
  };
  return visit(tree);
}

function toRegExp(source: string, ignoreCase: boolean): RegExp {
  const flags = ignoreCase ? "i" : "";
  try {
    return new RegExp(source, `u${flags}`);
  } catch {
    return new RegExp(source, flags);
  }
}

/** Tells whether one character fits. */
class CharacterTest {
  readonly #native: RegExp;
  /** For ASCII: 0 not asked yet, 1 fits, 2 does not. */
  readonly #ascii = new Uint8Array(128);

  constructor(source: string, ignoreCase: boolean) {
    this.#native = toRegExp(`^(?:${source})$`, ignoreCase);
  }

  fits(codePoint: number): boolean {
    if (codePoint >= 128) return this.#native.test(String.fromCodePoint(codePoint));
    let known = this.#ascii[codePoint];
    if (known === 0) {
      known = this.#native.test(String.fromCharCode(codePoint)) ? 1 : 2;
      this.#ascii[codePoint] = known;
    }
    return known === 1;
  }
}

type Instruction =
  | { readonly op: "character"; readonly test: CharacterTest }
  /** Goes on at both places. */
  | { readonly op: "split"; left: number; right: number }
  | { readonly op: "jump"; to: number }
  | { readonly op: "assertion"; readonly assertion: "start" | "end" | "word" | "not_word" }
  | { readonly op: "look"; readonly look: number; readonly negative: boolean }
  | { readonly op: "match" };

interface Program {
  readonly instructions: readonly Instruction[];
  /** Reads the text from its end. */
  readonly backward: boolean;
}

interface Machine {
  readonly main: Program;
  /** Inner ones before those that use them. A look-ahead's program is written backward: where it matches, the look-ahead begins. */
  readonly looks: readonly Program[];
  readonly parts: number;
}

class Compiler {
  readonly #tests = new Map<string, CharacterTest>();
  readonly #looks: Program[] = [];
  /** Parts and instructions so far; a part that comes to no instruction counts, or `(){9999}` of itself would unfold for ever. */
  #size = 0;

  constructor(private readonly ignoreCase: boolean) {}

  compile(tree: PatternNode): Machine {
    const main = this.#program(tree, false);
    return { main, looks: this.#looks, parts: this.#size };
  }

  #program(tree: PatternNode, backward: boolean): Program {
    const instructions: Instruction[] = [];
    this.#emit(tree, instructions, backward);
    this.#push(instructions, { op: "match" });
    return { instructions, backward };
  }

  #count(): void {
    this.#size += 1;
    if (this.#size > PROGRAM_MAX) throw new PatternError(`a regular expression whose repetitions unfold to at most ${PROGRAM_MAX} parts`);
  }

  #push(into: Instruction[], instruction: Instruction): void {
    this.#count();
    into.push(instruction);
  }

  #emit(node: PatternNode, into: Instruction[], backward: boolean): void {
    this.#count();
    switch (node.kind) {
      case "character": {
        const test = this.#tests.get(node.source) ?? new CharacterTest(node.source, this.ignoreCase);
        this.#tests.set(node.source, test);
        this.#push(into, { op: "character", test });
        return;
      }
      case "assertion":
        this.#push(into, { op: "assertion", assertion: node.assertion });
        return;
      case "sequence":
        for (const item of backward ? [...node.items].reverse() : node.items) this.#emit(item, into, backward);
        return;
      case "choice":
        this.#emitChoice(node.options, into, backward);
        return;
      case "repeat":
        this.#emitRepeat(node, into, backward);
        return;
      case "look": {
        const program = this.#program(node.item, !node.behind);
        this.#looks.push(program);
        this.#push(into, { op: "look", look: this.#looks.length - 1, negative: node.negative });
        return;
      }
    }
  }

  #emitChoice(options: readonly PatternNode[], into: Instruction[], backward: boolean): void {
    const jumps: { op: "jump"; to: number }[] = [];
    options.forEach((option, index) => {
      if (index === options.length - 1) {
        this.#emit(option, into, backward);
        return;
      }
      const split: Instruction = { op: "split", left: into.length + 1, right: 0 };
      this.#push(into, split);
      this.#emit(option, into, backward);
      const jump: { op: "jump"; to: number } = { op: "jump", to: 0 };
      this.#push(into, jump);
      jumps.push(jump);
      split.right = into.length;
    });
    for (const jump of jumps) jump.to = into.length;
  }

  #emitRepeat({ item, min, max }: { item: PatternNode; min: number; max: number }, into: Instruction[], backward: boolean): void {
    for (let copy = 0; copy < min; copy += 1) this.#emit(item, into, backward);
    if (max === Number.POSITIVE_INFINITY) {
      const split: Instruction = { op: "split", left: into.length + 1, right: 0 };
      const start = into.length;
      this.#push(into, split);
      this.#emit(item, into, backward);
      this.#push(into, { op: "jump", to: start });
      split.right = into.length;
      return;
    }
    const splits: { op: "split"; left: number; right: number }[] = [];
    for (let copy = min; copy < max; copy += 1) {
      const split: { op: "split"; left: number; right: number } = { op: "split", left: into.length + 1, right: 0 };
      this.#push(into, split);
      splits.push(split);
      this.#emit(item, into, backward);
    }
    for (const split of splits) split.right = into.length;
  }
}

interface Context {
  readonly points: readonly number[];
  /** For each look: where it holds. */
  readonly holds: Uint8Array[];
  steps: number;
}

function run(machine: Machine, text: string): boolean {
  const points: number[] = [];
  for (let index = 0; index < text.length; ) {
    const point = text.codePointAt(index) ?? 0;
    points.push(point);
    index += point > 0xffff ? 2 : 1;
  }
  const context: Context = { points, holds: [], steps: 0 };
  for (const look of machine.looks) {
    const places = new Uint8Array(points.length + 1);
    follow(look, context, (place) => {
      places[place] = 1;
      return false;
    });
    context.holds.push(places);
  }
  return follow(machine.main, context, () => true);
}

/** Starts the program at every place and tells each place at which it ends; stops when `matched` answers true. */
function follow({ instructions, backward }: Program, context: Context, matched: (place: number) => boolean): boolean {
  const { points } = context;
  const length = points.length;
  const current = new Int32Array(instructions.length);
  const next = new Int32Array(instructions.length);
  let count = 0;
  const addedAt = new Int32Array(instructions.length).fill(-1);
  const stack: number[] = [];

  for (let step = 0; step <= length; step += 1) {
    const place = backward ? length - step : step;
    // `current` holds where the last character led; the beginning joins them.
    let waiting = 0;
    let ended = false;
    stack.length = 0;
    stack.push(0);
    for (let index = 0; index < count; index += 1) stack.push(current[index] ?? 0);
    while (stack.length > 0) {
      const at = stack.pop() ?? 0;
      if (addedAt[at] === step) continue;
      addedAt[at] = step;
      context.steps += 1;
      const instruction = instructions[at];
      switch (instruction?.op) {
        case "character":
          next[waiting] = at;
          waiting += 1;
          break;
        case "split":
          stack.push(instruction.right, instruction.left);
          break;
        case "jump":
          stack.push(instruction.to);
          break;
        case "assertion":
          if (holdsAt(instruction.assertion, points, place)) stack.push(at + 1);
          break;
        case "look":
          if ((context.holds[instruction.look]?.[place] === 1) !== instruction.negative) stack.push(at + 1);
          break;
        default:
          ended = true;
      }
    }
    if (context.steps > STEPS_MAX) throw new PatternStepsError("The text takes too many steps to match.");
    if (ended && matched(place)) return true;
    if (step === length) break;

    const point = points[backward ? place - 1 : place] ?? 0;
    count = 0;
    for (let index = 0; index < waiting; index += 1) {
      const at = next[index] ?? 0;
      const instruction = instructions[at];
      if (instruction?.op === "character" && instruction.test.fits(point)) {
        current[count] = at + 1;
        count += 1;
      }
    }
    context.steps += waiting;
  }
  return false;
}

function holdsAt(assertion: "start" | "end" | "word" | "not_word", points: readonly number[], place: number): boolean {
  switch (assertion) {
    case "start":
      return place === 0;
    case "end":
      return place === points.length;
    case "word":
      return isWord(points[place - 1]) !== isWord(points[place]);
    case "not_word":
      return isWord(points[place - 1]) === isWord(points[place]);
  }
}

function isWord(point: number | undefined): boolean {
  return point !== undefined && point < 128 && /\w/.test(String.fromCharCode(point));
}
