/**
 * The stage of one case about a runner: a scripted broker, a folder for the journal, and the subject, which can be killed and started again.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Hello, Welcome } from "@toolrunner/proto";
import type { FakeSession } from "@toolrunner/runner-sdk/testing";
import { Skipped } from "./run-cases.js";
import { type ScriptedBroker, startScriptedBroker, type Wire } from "./scripted-broker.js";
import { Subject, type SubjectCommand, type SubjectEvent } from "./subject.js";

/** Tools that every runner under test serves; what each does goes by its name and is in docs/conformance.md. */
export const RUNNER_TOOLS = [
  { name: "echo", version: "1", idempotent: false, cancellable: false, read_only: false },
  { name: "gate", version: "1", idempotent: false, cancellable: true, read_only: false },
  { name: "hold", version: "2", idempotent: false, cancellable: false, read_only: false },
  { name: "lookup", version: "1", idempotent: true, cancellable: true, read_only: true },
  { name: "fail", version: "1", idempotent: true, cancellable: false, read_only: false },
  { name: "fill", version: "1", idempotent: true, cancellable: false, read_only: true },
] as const;

/** Grants that the runner under test takes at once. */
export const RUNNER_SLOTS = 4;
/** Of 5 s each. */
const SESSION_WAITS = 6;
export const BINDING = "conformance";
export const TOKEN = "conformance-token";

export interface RunnerStage {
  readonly wire: ScriptedBroker;
  readonly subject: Subject;
  /** Skips the case unless the subject says that it has this: `durable_journal` or `codec`. */
  needs(capability: string): Promise<void>;
  /** The next session, welcomed. */
  session(welcome?: Partial<Welcome>): Promise<{ readonly session: FakeSession; readonly hello: Hello }>;
  /** Kills the subject and starts another one with the same journal. */
  restart(): Promise<void>;
  /** Starts of handlers that happened before now, over all processes of the subject. */
  starts(): Promise<readonly SubjectEvent[]>;
  close(): Promise<void>;
}

export async function openRunnerStage(command: SubjectCommand, transport: Wire): Promise<RunnerStage> {
  const wire = await startScriptedBroker(transport);
  const folder = await mkdtemp(join(tmpdir(), "toolrunner-conformance-"));
  const subjects: Subject[] = [];
  const start = (): void => {
    const subject = new Subject(command);
    subjects.push(subject);
    subject.tell({
      do: "serve",
      url: wire.url,
      wire: transport,
      binding: BINDING,
      token: TOKEN,
      runner_id: "conformance-runner",
      journal: join(folder, "journal"),
      slots: RUNNER_SLOTS,
      tools: RUNNER_TOOLS,
    });
  };
  start();
  let asked = 0;
  const describe = async (subject: Subject): Promise<SubjectEvent> => {
    asked += 1;
    const name = `${asked}`;
    subject.tell({ do: "describe", name });
    return subject.event("described", (event) => event["name"] === name);
  };
  const current = (): Subject => subjects[subjects.length - 1] as Subject;
  return {
    wire,
    get subject() {
      return current();
    },
    async needs(capability) {
      if ((await describe(current()))[capability] !== true) throw new Skipped(`the subject does not say that it has "${capability}"`);
    },
    async session(welcome = {}) {
      const session = await patient(wire);
      return { session, hello: await session.welcome({ brokerId: "conformance", ...welcome }) };
    },
    async restart() {
      await current().kill();
      start();
    },
    async starts() {
      // Its lines come in order: what it wrote before this answer has been read.
      await describe(current());
      return subjects.flatMap((one) => one.said("started"));
    },
    async close() {
      await Promise.all(subjects.map((one) => one.kill()));
      await wire.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** A runtime may take a while to start, and longer on a busy machine: several waits of a fake broker. */
export async function patient({ broker }: ScriptedBroker): Promise<FakeSession> {
  for (let waits = 1; ; waits += 1) {
    try {
      return await broker.nextSession();
    } catch (error) {
      if (waits === SESSION_WAITS) throw error;
    }
  }
}
