/** Ids that people choose: what they may look like, and how one is made from a file's name. */
import { basename, extname } from "node:path";
import { usageError } from "../errors.js";

/** The form of every id that people choose. */
export const ID_FORM = /^[a-z][a-z0-9_-]{0,63}$/;

/**
 * The binding that a module serves when none is named: its file name without folder and extension, in lower case,
 * whatever an id cannot hold replaced by `-`, cut to 64 characters. Throws a usage fault when nothing is left.
 */
export function bindingOfFile(file: string): string {
  const name = basename(file);
  const id = name
    .slice(0, name.length - extname(name).length || undefined)
    .toLowerCase()
    .replace(/[^a-z0-9_]+/g, "-")
    .replace(/^[^a-z]+/, "")
    .slice(0, 64)
    .replace(/-+$/, "");
  if (!ID_FORM.test(id)) throw usageError(`no binding id can be made from the name ${JSON.stringify(name)}: name one with --binding`);
  return id;
}

/** Returns `id`, or throws a usage fault that says where it came from. */
export function checkedId(id: string, where: string): string {
  if (!ID_FORM.test(id))
    throw usageError(`${where} ${JSON.stringify(id)} is not an id: a small letter, then at most 63 of a–z, 0–9, _ and -`);
  return id;
}
