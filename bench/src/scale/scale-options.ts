/** How much of everything there is, and how long it is looked at. */

export interface ScaleSizes {
  /** Idle sessions on one broker. */
  readonly sessions: number;
  /** Beside as many. */
  readonly fewSessions: number;
  /** How long sessions are left alone before and while their cost is taken. */
  readonly settleMs: number;
  readonly idleMs: number;
  readonly settled: number;
  readonly fewSettled: number;
  readonly open: number;
  readonly fewOpen: number;
  /** Calls of a lane that are given capacity in one round. */
  readonly laneStep: number;
  readonly rounds: number;
  readonly loadMs: number;
  readonly warmUpMs: number;
  /** When the broker is killed, and how long calls are made for from before that on. */
  readonly restart: { readonly afterMs: number; readonly loadMs: number };
}

export const SCALE_FULL: ScaleSizes = {
  sessions: 10_000,
  fewSessions: 10,
  settleMs: 6_000,
  idleMs: 30_000,
  settled: 300_000,
  fewSettled: 1_000,
  open: 20_000,
  fewOpen: 10,
  laneStep: 500,
  rounds: 7,
  loadMs: 1_000,
  warmUpMs: 2_500,
  restart: { afterMs: 1_000, loadMs: 12_000 },
};

export const SCALE_QUICK: ScaleSizes = {
  sessions: 1_000,
  fewSessions: 10,
  settleMs: 2_000,
  idleMs: 6_000,
  settled: 20_000,
  fewSettled: 1_000,
  open: 2_000,
  fewOpen: 10,
  laneStep: 200,
  rounds: 3,
  loadMs: 400,
  warmUpMs: 1_000,
  restart: { afterMs: 500, loadMs: 4_000 },
};
