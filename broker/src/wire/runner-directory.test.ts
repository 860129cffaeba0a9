import { createMemoryChannelPair } from "@toolrunner/proto";
import { describe, expect, it } from "vitest";
import { createLocalBusHub } from "../bus/local/local-bus.js";
import { manualClock } from "./manual-clock.test.kit.js";
import type { Membership } from "./membership.js";
import { RunnerDirectory } from "./runner-directory.js";
import { Random } from "./schedule/world.test.kit.js";
import type { Session } from "./session.js";
import { SessionGrants } from "./session-grants.js";
import { SessionRegistry } from "./session-registry.js";
import { SessionWork } from "./session-work.js";
import { createTimerWheel } from "./timer-wheel.js";
import { AGENT } from "./wire.test.kit.js";

const clock = manualClock();
const timers = createTimerWheel(clock, () => undefined);

/** Counts how often the handlers of sessions are looked at: only those that are shown have them written out. */
function directoryOf(count: number) {
  const random = new Random(3);
  const registry = new SessionRegistry();
  const looks = { count: 0 };
  for (let index = 0; index < count; index += 1) {
    const session: Session = {
      ref: {
        brokerId: "broker",
        application: index % 10 === 0 ? "other" : AGENT.application,
        binding: `shop_${index % 3}`,
        runnerId: `runner_${index}`,
        sessionEpoch: 1,
      },
      channel: createMemoryChannelPair().broker,
      bindingKind: "backend",
      subject: null,
      keyId: "key",
      journalId: "journal",
      sdk: "",
      // Many share a millisecond.
      connectedAtMs: 1_700_000_000_000 + Math.floor(random.next() * 50),
      handlers: new Map(),
      grants: new SessionGrants(() => undefined),
      work: new SessionWork(timers),
      slots: 1,
      reserved: 0,
      sight: 2,
      focused: false,
      draining: false,
      expired: false,
      congested: false,
      bringing: false,
      closed: index % 11 === 0,
      pingNumber: 0,
      pongNumber: 0,
      relayedPong: undefined,
      newsCount: 0,
      declines: 0,
      leftAloneUntilMs: 0,
      awaitsDefinitions: undefined,
    };
    registry.add(session);
    const { handlers } = session;
    Object.defineProperty(session, "handlers", {
      get() {
        looks.count += 1;
        return handlers;
      },
    });
  }
  const bus = createLocalBusHub({ clock }).connect();
  const membership = { alone: true, others: 0 } as unknown as Membership;
  return { directory: new RunnerDirectory({ bus, membership, registry }), registry, looks };
}

describe("the listing of runners", () => {
  it("shows each once, the newest first, page by page, and only those of its application that are connected", async () => {
    const { directory, registry } = directoryOf(300);
    const expected = [...registry.all]
      .filter((session) => session.ref.application === AGENT.application && !session.closed)
      .map(({ connectedAtMs, ref }) => `${new Date(connectedAtMs).toISOString()} ${ref.binding} ${ref.runnerId}`)
      .sort()
      .reverse();
    const shown: string[] = [];
    let page: string | undefined;
    do {
      const found = await directory.list(AGENT, { limit: 37, page });
      expect(found.data.length).toBeLessThanOrEqual(37);
      shown.push(...found.data.map((view) => `${view.connected_at} ${view.binding} ${view.runner_id}`));
      page = found.next_page ?? undefined;
    } while (page !== undefined);
    expect(shown).toEqual(expected);
  });

  it("writes out only what it shows, however many are connected", async () => {
    const { directory, looks } = directoryOf(1_500);
    expect((await directory.list(AGENT, {})).data).toHaveLength(20);
    expect(looks.count).toBeLessThanOrEqual(21);
  });

  it("refuses a page token of something else, and survives one with an impossible time", async () => {
    const { directory } = directoryOf(10);
    const token = (text: string): string => Buffer.from(text).toString("base64url");
    await expect(directory.list(AGENT, { page: token("nonsense") })).rejects.toMatchObject({ code: "page_invalid" });
    expect((await directory.list(AGENT, { page: token("2026-99-99T99:99:99Z x y") })).data.length).toBeLessThanOrEqual(20);
  });
});
