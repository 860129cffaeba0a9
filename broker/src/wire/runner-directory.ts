/** The runners that are connected to any broker: each answers for its own sessions, so it costs nothing when nobody looks. */
import { BrokerError } from "../domain/broker-error.js";
import type { AgentPrincipal } from "../domain/ports/access.js";
import { type Bus, BusError, type Subscription } from "../domain/ports/bus.js";
import type { Page, PageRequest } from "../domain/ports/catalog.js";
import type { Membership } from "./membership.js";
import type { RunnerOperations, RunnerView } from "./operations.js";
import { type Session, slotsInUse } from "./session.js";
import type { SessionRegistry } from "./session-registry.js";

const ANSWERS_MS = 1_000;
const LIMIT_DEFAULT = 20;

interface Query {
  readonly application: string;
  readonly limit: number;
  /** Only what comes after this place in the order. */
  readonly after: string | null;
}

export class RunnerDirectory implements RunnerOperations {
  private endpoint: Subscription | undefined;

  constructor(private readonly context: { readonly bus: Bus; readonly membership: Membership; readonly registry: SessionRegistry }) {}

  start(): void {
    this.endpoint = this.context.bus.respond("runners", async (payload) => JSON.stringify(this.here(JSON.parse(payload) as Query)));
  }

  stop(): void {
    this.endpoint?.unsubscribe();
  }

  async list(principal: AgentPrincipal, page: PageRequest): Promise<Page<RunnerView>> {
    const query: Query = {
      application: principal.application,
      limit: page.limit ?? LIMIT_DEFAULT,
      after: page.page === undefined ? null : placeOf(page.page),
    };
    const everywhere = this.context.membership.alone ? [this.here(query)] : await this.ask(query);
    const found = everywhere.flat().sort((a, b) => (place(a) < place(b) ? 1 : -1));
    const data = found.slice(0, query.limit);
    const last = data.at(-1);
    return { data, next_page: found.length > query.limit && last !== undefined ? Buffer.from(place(last)).toString("base64url") : null };
  }

  private async ask(query: Query): Promise<RunnerView[][]> {
    try {
      const answers = await this.context.bus.requestMany("runners", JSON.stringify(query), {
        timeoutMs: ANSWERS_MS,
        max: this.context.membership.others + 1,
      });
      return answers.map((answer) => JSON.parse(answer) as RunnerView[]);
    } catch (error) {
      if (error instanceof BusError) {
        return [this.here(query)];
      }
      throw error;
    }
  }

  private here(query: Query): RunnerView[] {
    return [...this.context.registry.all]
      .filter((session) => session.ref.application === query.application && !session.closed)
      .map(runnerView)
      .filter((view) => query.after === null || place(view) < query.after)
      .sort((a, b) => (place(a) < place(b) ? 1 : -1))
      .slice(0, query.limit + 1);
  }
}

/** Newest first, and one place for each session. */
function place(view: RunnerView): string {
  return `${view.connected_at} ${view.binding} ${view.runner_id}`;
}

function placeOf(page: string): string {
  const text = Buffer.from(page, "base64url").toString("utf8");
  if (!/^\d{4}-\d\d-\d\dT[\d:.]+Z /.test(text)) {
    throw new BrokerError("page_invalid", "page: this token is not one of a listing of runners");
  }
  return text;
}

function runnerView(session: Session): RunnerView {
  return {
    runner_id: session.ref.runnerId,
    binding: session.ref.binding,
    subject: session.subject,
    broker_id: session.ref.brokerId,
    session_epoch: session.ref.sessionEpoch,
    transport: session.channel.transport,
    sdk: session.sdk,
    connected_at: new Date(session.connectedAtMs).toISOString(),
    slots: session.slots,
    grants_held: slotsInUse(session),
    handlers: [...session.handlers.values()].map(({ tool, version, idempotent, cancellable }) => ({
      tool,
      version,
      idempotent,
      cancellable,
    })),
  };
}
