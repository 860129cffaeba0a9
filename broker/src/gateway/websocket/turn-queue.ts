/**
 * Does jobs that come in crowds a few in each turn of the event loop, so that whatever else there is has its turn between them.
 *
 * Invariants: jobs are begun in order; one that comes alone is begun at once.
 */

/** A queue of jobs. */
export interface TurnQueue {
  /** Begins `job` now, or in one of the next turns. Jobs do not throw. */
  add(job: () => void): void;
  /** Jobs that were not begun. */
  readonly waiting: number;
}

/** Makes an empty queue that begins at most `jobsATurn` jobs in one turn. */
export function createTurnQueue(jobsATurn: number): TurnQueue {
  const waiting: (() => void)[] = [];
  /** In the present turn. */
  let begun = 0;
  let turning = false;

  function nextTurn(): void {
    turning = false;
    begun = 0;
    while (begun < jobsATurn) {
      const job = waiting.shift();
      if (job === undefined) return;
      begin(job);
    }
  }

  function begin(job: () => void): void {
    begun += 1;
    if (!turning) {
      turning = true;
      setImmediate(nextTurn);
    }
    job();
  }

  return {
    add(job) {
      if (waiting.length === 0 && begun < jobsATurn) begin(job);
      else waiting.push(job);
    },
    get waiting() {
      return waiting.length;
    },
  };
}
