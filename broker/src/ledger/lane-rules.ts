/** What every store of lanes checks first: both names become tokens of a NATS subject. */
const NAME = /^[A-Za-z0-9_-]{1,128}$/;

/** Throws `TypeError` when `lane` or `callId` is not 1 to 128 characters of `[A-Za-z0-9_-]`. */
export function checkLaneNames(lane: string, callId?: string): void {
  for (const name of callId === undefined ? [lane] : [lane, callId]) {
    if (!NAME.test(name)) throw new TypeError(`"${name.slice(0, 200)}" names no lane and no call: 1 to 128 characters of [A-Za-z0-9_-]`);
  }
}
