/**
 * References to elements, handed to an agent and back.
 *
 * Invariants: a reference names one element of one load of one page for ever: another load, or another tab, knows it not, and never
 * takes it for an element of its own; references hold no element alive, and the oldest go when there are many.
 */
import { ToolError } from "@toolrunner/runner-sdk";
import * as dom from "./native-dom.js";

/** References that are kept. */
export const REFERENCES_MAX = 5_000;
const ALPHABET = "abcdefghijklmnopqrstuvwxyz234567";

/** The references of one page. */
export class ElementRefs {
  readonly #load = [...crypto.getRandomValues(new Uint8Array(4))].map((byte) => ALPHABET[byte & 31]).join("");
  readonly #byRef = new Map<string, WeakRef<Element>>();
  readonly #byElement = new WeakMap<Element, string>();
  #count = 0;

  /** The element's reference, the same each time while it is kept. */
  of(element: Element): string {
    const known = this.#byElement.get(element);
    if (known !== undefined && this.#byRef.has(known)) return known;
    this.#count += 1;
    const ref = `e${this.#count}_${this.#load}`;
    this.#byRef.set(ref, new WeakRef(element));
    this.#byElement.set(element, ref);
    if (this.#byRef.size > REFERENCES_MAX) for (const oldest of this.#byRef.keys()) return this.#drop(oldest, ref);
    return ref;
  }

  /** @throws ToolError `element_stale` when the page no longer has it. */
  resolve(ref: string): Element {
    const element = this.#byRef.get(ref)?.deref();
    if (element !== undefined && dom.isConnected(element)) return element;
    throw new ToolError(
      "element_stale",
      `${JSON.stringify(ref.slice(0, 40))} is no element of this page as it is now: the page changed, was loaded again, or another tab answers. Use find again.`,
    );
  }

  #drop(oldest: string, kept: string): string {
    this.#byRef.delete(oldest);
    return kept;
  }
}
