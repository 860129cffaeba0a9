/**
 * A runner key in a file, as secrets are mounted into containers.
 *
 * Invariants: the file is read again before each connection, so a key that was replaced there is used without a restart; what a
 * message says of it is where it is and what is wrong, never what is in it.
 */
import { readFile, stat } from "node:fs/promises";
import { resolve } from "node:path";
import { type CliError, messageOf, startError } from "../errors.js";

/** Bytes of a file that is still taken for a key: keys have 512 characters at most. */
const FILE_BYTES_MAX = 4_096;

/**
 * Gives the key in `file`, relative to `cwd`, each time it is called. `where` names the option or variable that named the file.
 * The function rejects with a start-up fault `token_file_invalid` when the file cannot be read, is empty, or holds more than one line.
 */
export function tokenOfFile(file: string, where: string, cwd: string): () => Promise<string> {
  const path = resolve(cwd, file);
  const invalid = (what: string, cause?: unknown): CliError =>
    startError("token_file_invalid", `${where}: ${path} ${what}; it holds the runner key and nothing else`, cause);
  return async () => {
    let text: string;
    try {
      // A device or a pipe might never end.
      const found = await stat(path);
      if (!found.isFile()) throw invalid("is not a file");
      if (found.size > FILE_BYTES_MAX) throw invalid(`has ${found.size} bytes, which is no key`);
      text = await readFile(path, "utf8");
    } catch (cause) {
      throw cause instanceof Error && "exitCode" in cause ? cause : invalid(`cannot be read (${messageOf(cause)})`, cause);
    }
    const token = text.replace(/^\ufeff/, "").trim();
    if (token === "") throw invalid("is empty");
    if (!/^[\x21-\x7e]+$/.test(token)) throw invalid("has spaces, several lines or characters that no key has");
    return token;
  };
}
