/**
 * The reconcile handlers of a simulated runner: they look at what the site's product remembers and change nothing.
 *
 * Invariants: nothing of the call runs in this process while a handler looks; an answer goes out on the session that asked.
 */
import type { Reconcile, ReconcileAnswer, RunnerFrame } from "@toolrunner/proto";
import { type Link, type SimRunnerOptions, type SimRunnerSite, succeeded } from "./sim-execution.test.kit.js";
import { FINISHED, NOT_STARTED, phaseOf, type SimJournal } from "./sim-journal.test.kit.js";

export class SimReconcile {
  constructor(
    private readonly site: SimRunnerSite,
    private readonly options: SimRunnerOptions,
    private readonly journal: SimJournal,
    private readonly isLive: (callId: string) => boolean,
    private readonly send: (link: Link, frame: RunnerFrame["frame"]) => void,
  ) {}

  /** `calm`: the handler is quick, and can tell. */
  take(link: Link, question: Reconcile, calm: boolean): void {
    this.answer(link, question, calm).catch((error: unknown) => this.site.failed(String(error)));
  }

  private async answer(link: Link, { grant, startedGrantId }: Reconcile, calm: boolean): Promise<void> {
    const { site, journal, options } = this;
    const { random } = site.world;
    if (grant === undefined) {
      site.failed("a question without a grant");
      return;
    }
    const say = (outcome: ReconcileAnswer["outcome"]): void => {
      const { callId, grantId, fence } = grant;
      this.send(link, { $case: "reconcileAnswer", value: { callId, grantId, fence, outcome } });
    };
    const unavailable = (message: string): void => say({ $case: "unavailable", value: { message } });
    const entry = journal.get(startedGrantId);
    if (options.tools.every(({ tool, reconciles }) => tool !== grant.tool || reconciles !== true)) {
      site.failed(`${options.runnerId} was asked about ${grant.tool}, which does not reconcile`);
      return;
    }
    if (entry === undefined || grant.sessionEpoch !== link.epoch) {
      unavailable("not known here, or of another session");
      return;
    }
    if (this.isLive(grant.callId) || phaseOf(entry, link.process) === FINISHED) {
      unavailable("it runs, or it finished");
      return;
    }
    if (phaseOf(entry, link.process) === NOT_STARTED) {
      say({ $case: "notApplied", value: {} });
      return;
    }
    // The handler looks at one moment, and says so at a later one.
    await link.process.turn(random.between(0.1, 30));
    const isDone = site.effects(grant.callId) > 0;
    if (!calm && random.chance(0.1)) {
      // It never ends.
      return;
    }
    await link.process.turn(calm || random.chance(0.7) ? 1 : random.between(1, 2_000));
    if (!calm && random.chance(0.2)) {
      say({ $case: "unknown", value: { message: "cannot tell" } });
    } else if (isDone) {
      const outcome = succeeded(grant.callId);
      say({ $case: "applied", value: { resultJson: outcome?.$case === "succeeded" ? outcome.value.resultJson : "" } });
    } else {
      say({ $case: "notApplied", value: {} });
    }
  }
}
