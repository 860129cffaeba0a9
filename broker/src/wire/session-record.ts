/** The shared record of a runner's present session: its revision is the session's epoch (B2). */

export interface SessionRecord {
  readonly brokerId: string;
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
