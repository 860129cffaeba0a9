/** The shared record of a runner's present session: its revision is the session's epoch (B2). */
import type { CloseCode } from "@toolrunner/proto";

export interface SessionRecord {
  readonly brokerId: string;
  readonly journalId: string;
}

/** A session of a runner that superseded what came before it, wherever it is. */
export interface NewestSession {
  readonly sessionEpoch: number;
  readonly journalId: string;
}

interface RunnerName {
  readonly application: string;
  readonly binding: string;
  readonly runnerId: string;
}

/** A registry key of its own for each runner: ids are checked for what a key can hold. */
export function sessionKey({ application, binding, runnerId }: RunnerName): string {
  return `${application}.${binding}.${runnerId}`;
}

export function runnerOfKey(key: string): RunnerName | undefined {
  const [application, binding, runnerId] = key.split(".");
  return application === undefined || binding === undefined || runnerId === undefined ? undefined : { application, binding, runnerId };
}

export function encodeSessionRecord(record: SessionRecord): string {
  return JSON.stringify(record);
}

export function decodeSessionRecord(value: string): SessionRecord {
  return JSON.parse(value) as SessionRecord;
}

/**
 * How the session of an older record is closed. One process holds a journal: a newer session with the same one is the runner's
 * own, of a hello that was given up and came late, after the one that was answered. Then it has to dial again, or it would be
 * gone for good because of itself. With another journal it is somebody else's, and the runner that was superseded stays away (B2).
 */
export function supersededClose(
  older: { readonly journalId: string },
  newer: { readonly journalId: string },
): {
  readonly code: CloseCode;
  readonly reason: string;
} {
  return older.journalId !== "" && older.journalId === newer.journalId
    ? { code: 4500, reason: "another hello of this runner came after this session's: dial again" }
    : { code: 4409, reason: "a newer session of the same runner id took over" };
}
