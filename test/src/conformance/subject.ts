/**
 * The implementation under test: a process that is told what to do in lines of JSON on its stdin, and answers in lines of JSON on its
 * stdout. docs/conformance.md describes the lines for authors.
 *
 * Invariants: the process is ended by its process id when a case is over, whatever came of the case; a line that is not one JSON object with an
 * `event` fails the case that reads it; stderr is kept for the report and means nothing.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";

/** A line of a subject. */
export interface SubjectEvent {
  readonly event: string;
  readonly [field: string]: unknown;
}

export interface SubjectCommand {
  readonly program: string;
  readonly args: readonly string[];
}

/** How long a subject may take for anything that it is asked, in ms. Its start included: slow languages are welcome. */
export const ANSWER_MS = 30_000;

const LAST_LINES_MS = 500;

export class Subject {
  readonly exited: Promise<number | null>;
  private readonly child: ChildProcess;
  private readonly events: SubjectEvent[] = [];
  private readonly listeners = new Set<() => void>();
  private fault: string | undefined;
  private ended = false;
  private errors = "";

  constructor(command: SubjectCommand) {
    this.child = spawn(command.program, command.args, { stdio: ["pipe", "pipe", "pipe"] });
    this.exited = new Promise((resolve) => {
      this.child.once("error", (error) => {
        this.fault = `${command.program} could not be started: ${error.message}`;
        this.over(() => resolve(null));
      });
      this.child.once("exit", (code) => {
        // Its last lines may still be on the way; a process of its own that lives on must not be waited for.
        const late = setTimeout(() => this.over(() => resolve(code)), LAST_LINES_MS);
        this.child.once("close", () => {
          clearTimeout(late);
          this.over(() => resolve(code));
        });
      });
    });
    this.child.stdin?.on("error", () => undefined);
    this.child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.errors = (this.errors + text).slice(-4_000);
    });
    if (this.child.stdout !== null) createInterface({ input: this.child.stdout }).on("line", (line) => this.take(line));
  }

  /** What it wrote on stderr, the end of it. */
  get stderr(): string {
    return this.errors;
  }

  /** Sends one line. */
  tell(command: { readonly do: string; readonly [field: string]: unknown }): void {
    this.child.stdin?.write(`${JSON.stringify(command)}\n`);
  }

  /** The first event of this kind, since the start, that `fits`; waits for it. */
  async event(event: string, fits: (event: SubjectEvent) => boolean = () => true, withinMs = ANSWER_MS): Promise<SubjectEvent> {
    let found: SubjectEvent | undefined;
    const look = (): boolean => {
      found = this.events.find((one) => one.event === event && fits(one));
      return found !== undefined || this.fault !== undefined || this.ended;
    };
    await this.until(look, withinMs);
    if (found !== undefined) return found;
    const said = this.events.map((one) => JSON.stringify(one).slice(0, 200)).join(", ") || "nothing";
    throw new Error(
      this.fault ?? `the subject did not say "${event}" within ${withinMs} ms${this.ended ? ": it ended" : ""}; it said ${said}`,
    );
  }

  /** Events of this kind so far. */
  said(event: string): readonly SubjectEvent[] {
    if (this.fault !== undefined) throw new Error(this.fault);
    return this.events.filter((one) => one.event === event);
  }

  /** SIGKILL; resolves when the process is gone. */
  async kill(): Promise<void> {
    this.child.kill("SIGKILL");
    await this.exited;
  }

  private take(line: string): void {
    let event: unknown;
    try {
      event = JSON.parse(line);
    } catch {
      event = undefined;
    }
    if (typeof event === "object" && event !== null && "event" in event && typeof event.event === "string") {
      this.events.push(event as SubjectEvent);
    } else {
      this.fault ??= `the subject wrote a line on stdout that is not a JSON object with an "event": ${line.slice(0, 200)}`;
    }
    this.wake();
  }

  private over(resolve: () => void): void {
    this.ended = true;
    resolve();
    this.wake();
  }

  private wake(): void {
    for (const listener of [...this.listeners]) listener();
  }

  private until(look: () => boolean, withinMs: number): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        this.listeners.delete(listener);
        resolve();
      };
      const listener = (): void => {
        if (look()) done();
      };
      const timer = setTimeout(done, withinMs);
      this.listeners.add(listener);
      listener();
    });
  }
}
