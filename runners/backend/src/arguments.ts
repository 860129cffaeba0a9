/**
 * Reads the arguments of a call. The broker checks them against the schema first; a handler still trusts nothing, for it
 * may be served by a broker whose catalog has another schema.
 */
import { WorkspaceFault } from "./workspace-fault.js";

/** The arguments of a call, each read by name and type. */
export class Arguments {
  readonly #values: Readonly<Record<string, unknown>>;

  /** @throws {WorkspaceFault} `arguments_invalid` when `value` is not an object */
  constructor(value: unknown) {
    if (typeof value !== "object" || value === null || Array.isArray(value)) {
      throw new WorkspaceFault("arguments_invalid", "The arguments must be an object.");
    }
    this.#values = { ...value };
  }

  /** A string; undefined when absent. */
  string(name: string): string | undefined {
    const value = this.#values[name];
    if (value === undefined || value === null) return undefined;
    if (typeof value !== "string") throw this.#wrong(name, "a string");
    return value;
  }

  /** A string that must be there and not be empty. */
  text(name: string): string {
    const value = this.string(name);
    if (value === undefined || value === "") throw this.#wrong(name, "a string that is not empty");
    return value;
  }

  /** A path: a string without NUL characters, which no file system takes. */
  path(name: string): string | undefined {
    const value = this.string(name);
    if (value?.includes("\0") === true) throw this.#wrong(name, "a path without NUL characters");
    return value;
  }

  /** A boolean; false when absent. */
  boolean(name: string): boolean {
    const value = this.#values[name];
    if (value === undefined || value === null) return false;
    if (typeof value !== "boolean") throw this.#wrong(name, "true or false");
    return value;
  }

  /** An integer within bounds, both included; undefined when absent. */
  integer(name: string, minimum: number, maximum: number): number | undefined {
    const value = this.#values[name];
    if (value === undefined || value === null) return undefined;
    if (typeof value !== "number" || !Number.isSafeInteger(value) || value < minimum || value > maximum) {
      throw this.#wrong(name, `an integer from ${minimum} to ${maximum}`);
    }
    return value;
  }

  /** A pair of integers; undefined when absent. */
  pair(name: string): readonly [number, number] | undefined {
    const value = this.#values[name];
    if (value === undefined || value === null) return undefined;
    if (Array.isArray(value) && value.length === 2) {
      const [first, second]: readonly unknown[] = value;
      if (typeof first === "number" && typeof second === "number" && Number.isSafeInteger(first) && Number.isSafeInteger(second)) {
        return [first, second];
      }
    }
    throw this.#wrong(name, "a list of two integers");
  }

  /** One of a closed set of words; undefined when absent. */
  choice<Word extends string>(name: string, words: readonly Word[]): Word | undefined {
    const value = this.#values[name];
    if (value === undefined || value === null) return undefined;
    const word = words.find((candidate) => candidate === value);
    if (word === undefined) throw this.#wrong(name, `one of ${words.join(", ")}`);
    return word;
  }

  #wrong(name: string, expected: string): WorkspaceFault {
    return new WorkspaceFault("arguments_invalid", `${name} must be ${expected}.`);
  }
}
