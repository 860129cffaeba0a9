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

  private here({ application, limit, after }: Query): RunnerView[] {
    const newest = new NewestSessions(limit + 1, after);
    for (const session of this.context.registry.all) {
      if (session.ref.application === application && !session.closed) {
        newest.add(session);
      }
    }
    return newest.views();
  }
}

/** The first of many sessions in the order of listings. Only those that have a chance are looked at closely. */
class NewestSessions {
  /** First the first. */
  private readonly found: { readonly session: Session; readonly place: string }[] = [];
  private readonly beforeMs: number;

  constructor(
    private readonly count: number,
    private readonly after: string | null,
  ) {
    this.beforeMs = after === null ? Number.POSITIVE_INFINITY : Date.parse(after.slice(0, after.indexOf(" ")));
  }

  add(session: Session): void {
    const last = this.found.length < this.count ? undefined : this.found.at(-1);
    if (session.connectedAtMs > this.beforeMs || (last !== undefined && session.connectedAtMs < last.session.connectedAtMs)) {
      return;
    }
    const own = placeOfSession(session);
    if ((this.after !== null && own >= this.after) || (last !== undefined && own <= last.place)) {
      return;
    }
    if (last !== undefined) {
      this.found.pop();
    }
    let low = 0;
    for (let high = this.found.length; low < high; ) {
      const middle = (low + high) >> 1;
      if ((this.found[middle]?.place ?? "") > own) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    this.found.splice(low, 0, { session, place: own });
  }

  views(): RunnerView[] {
    return this.found.map(({ session }) => runnerView(session));
  }
}

/** Newest first, and one place for each session. */
function place(view: Pick<RunnerView, "connected_at" | "binding" | "runner_id">): string {
  return `${view.connected_at} ${view.binding} ${view.runner_id}`;
}

function placeOfSession({ connectedAtMs, ref }: Session): string {
  return place({ connected_at: new Date(connectedAtMs).toISOString(), binding: ref.binding, runner_id: ref.runnerId });
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
