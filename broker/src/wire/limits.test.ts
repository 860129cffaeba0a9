import { afterEach, describe, expect, it } from "vitest";
import { silentLog } from "../app/logs.js";
import type { CallView } from "../domain/call-view.js";
import type { CallLimits, ResolvedTool } from "../domain/ports/catalog.js";
import type { CreateCallBody } from "./operations.js";
import { AGENT, connectRunner, createSite, type Site, startBroker, type TestBroker, TOOL, until } from "./wire.test.kit.js";

const stops: (() => Promise<unknown> | unknown)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) {
    await stop();
  }
});

/** A broker whose tool `echo` has these limits at each moment. */
async function broker(site: Site, limits: () => CallLimits | undefined): Promise<TestBroker> {
  const resolveTool = async (_application: string, toolset: string, tool: string): Promise<ResolvedTool> => ({
    toolset,
    toolsetVersion: 1,
    tool: { ...TOOL, name: tool, idempotent: tool === "safe" },
    bindingKind: "backend",
    limits: limits(),
    checkArguments: () => [],
    checkResult: () => [],
  });
  const started = await startBroker(site, {}, { catalog: { resolveTool } });
  let dead = false;
  stops.push(() => (dead ? undefined : started.stop()));
  return {
    ...started,
    kill() {
      dead = true;
      started.kill();
    },
  };
}

const call = (n: number, over: Partial<CreateCallBody> = {}): CreateCallBody => ({
  toolset: "shop",
  tool: "echo",
  arguments: { n },
  ...over,
});
const nOf = (grant: { readonly argumentsJson: string }): number => (JSON.parse(grant.argumentsJson) as { n: number }).n;
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const TWO: CallLimits = { binding: { concurrency: 2 }, tool: null };

describe("calls of a binding with limits (X8)", () => {
  it("run as many at once as the limit says, however many slots are free; the others wait for capacity", async () => {
    const site = createSite(silentLog);
    const one = await broker(site, () => TWO);
    const runner = await connectRunner(one.wire, { slots: 16 });
    const views: CallView[] = [];
    for (let n = 0; n < 6; n += 1) {
      views.push(await one.wire.calls.create(AGENT, call(n), {}));
    }
    expect(
      await until("waiting", async () => {
        const view = await one.wire.calls.get(AGENT, views[5]?.id ?? "", {});
        return view.waiting_for === "capacity" && view;
      }),
    ).toMatchObject({ state: "queued" });
    const order: number[] = [];
    for (let n = 0; n < 6; n += 1) {
      const grant = await runner.next();
      order.push(nOf(grant));
      expect(runner.grants.length - n).toBeLessThanOrEqual(2);
      runner.succeed(grant);
    }
    expect(order).toEqual([0, 1, 2, 3, 4, 5]);
    await until("rest", () => one.wire.inspect()["permits"] === 0);
  });

  it("share the limit over brokers, whichever owns the binding and wherever the runners are (B4)", async () => {
    const site = createSite(silentLog);
    const brokers = [await broker(site, () => TWO), await broker(site, () => TWO), await broker(site, () => TWO)];
    const runners = await Promise.all(
      brokers.map(({ wire }, index) => connectRunner(wire, { slots: 8, runnerId: `runner_${index}`, journalId: `journal_${index}` })),
    );
    let settled = 0;
    const granted = (): number => runners.reduce((sum, { grants }) => sum + grants.length, 0);
    await Promise.all(Array.from({ length: 30 }, (_, n) => (brokers[n % 3] as TestBroker).wire.calls.create(AGENT, call(n), {})));
    const taken = runners.map(() => 0);
    while (settled < 30) {
      const at = await until("a grant", () => {
        const index = runners.findIndex(({ grants }, which) => grants.length > (taken[which] ?? 0));
        return index >= 0 && { index };
      });
      expect(granted() - settled).toBeLessThanOrEqual(2);
      const runner = runners[at.index];
      const grant = runner?.grants[taken[at.index] ?? 0];
      taken[at.index] = (taken[at.index] ?? 0) + 1;
      settled += 1;
      runner?.succeed(grant as NonNullable<typeof grant>);
    }
    expect(granted()).toBe(30);
    await until("rest", () => brokers.every(({ wire }) => wire.inspect()["permits"] === 0));
  });

  it("are refused with 429 when the queue is full; a known key gets its call all the same, at any broker (B5)", async () => {
    const site = createSite(silentLog);
    const limits: CallLimits = { binding: { concurrency: 1, queue: 1 }, tool: null };
    const [one, two] = [await broker(site, () => limits), await broker(site, () => limits)];
    const runner = await connectRunner(one.wire, { slots: 4 });
    const first = await one.wire.calls.create(AGENT, call(0, { idempotency_key: "k0" }), {});
    const second = await one.wire.calls.create(AGENT, call(1, { idempotency_key: "k1" }), {});
    for (const { wire } of [one, two]) {
      await expect(wire.calls.create(AGENT, call(2, { idempotency_key: "k2" }), {})).rejects.toMatchObject({
        code: "queue_full",
        retryAfterSeconds: 1,
      });
      expect((await wire.calls.create(AGENT, call(0, { idempotency_key: "k0" }), {})).id).toBe(first.id);
      expect((await wire.calls.create(AGENT, call(1, { idempotency_key: "k1" }), {})).id).toBe(second.id);
    }
    runner.succeed(await runner.next());
    runner.succeed(await runner.next());
    await until("both settled", () => site.store.openCalls.size === 0);
    // The refused key was not used up.
    const third = await until("room", async () =>
      one.wire.calls.create(AGENT, call(2, { idempotency_key: "k2" }), {}).catch(() => false as const),
    );
    expect(nOf(await runner.next())).toBe(2);
    expect(third.id).not.toBe(second.id);
  });

  it("count each tool by itself, so that one that waits for no runner holds nobody up", async () => {
    const site = createSite(silentLog);
    const one = await broker(site, () => ({ binding: { concurrency: 1 }, tool: null }));
    const runner = await connectRunner(one.wire, { slots: 4 });
    await one.wire.calls.create(AGENT, call(0, { tool: "nobody_has_it" }), {});
    await one.wire.calls.create(AGENT, call(1), {});
    expect(nOf(await runner.next())).toBe(1);
  });

  it("give their place up when they are cancelled, fail over or lose their runner", async () => {
    const site = createSite(silentLog);
    const one = await broker(site, () => ({ binding: null, tool: { concurrency: 1 } }));
    const runner = await connectRunner(one.wire, { slots: 4 });
    const running = await one.wire.calls.create(AGENT, call(0), {});
    const waits = await one.wire.calls.create(AGENT, call(1), {});
    await one.wire.calls.create(AGENT, call(2), {});
    await runner.next();
    await one.wire.calls.cancel(AGENT, waits.id, {});
    await one.wire.calls.cancel(AGENT, running.id, { mode: "killnowait" });
    expect(nOf(await runner.next())).toBe(2);
    runner.close();
    await connectRunner(one.wire, { runnerId: "runner_2", journalId: "journal_2" });
    await until(
      "needs_reconciliation",
      async () => (await one.wire.calls.create(AGENT, call(3, { idempotency_key: "k" }), {})).state !== "queued",
    );
  });

  it("go on after the owner of the binding died, and after the driver of what runs died (B4, I9)", async () => {
    const site = createSite(silentLog);
    const brokers = [await broker(site, () => TWO), await broker(site, () => TWO), await broker(site, () => TWO)];
    const [victim, other, last] = brokers as [TestBroker, TestBroker, TestBroker];
    const runner = await connectRunner(last.wire, { slots: 16 });
    for (let n = 0; n < 9; n += 1) {
      await (brokers[n % 3] as TestBroker).wire.calls.create(AGENT, call(n), {});
    }
    const seen: number[] = [];
    for (let n = 0; n < 9; n += 1) {
      const grant = await runner.next();
      seen.push(nOf(grant));
      if (n === 2) {
        victim.kill();
      }
      if (n === 5) {
        other.kill();
      }
      runner.succeed(grant);
    }
    expect(seen.sort()).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8]);
    await until("rest", () => last.wire.inspect()["permits"] === 0);
  });

  it("take a new limit from the next call on", async () => {
    const site = createSite(silentLog);
    let limits: CallLimits = { binding: { concurrency: 1 }, tool: null };
    const one = await broker(site, () => limits);
    const runner = await connectRunner(one.wire, { slots: 8 });
    await one.wire.calls.create(AGENT, call(0), {});
    await one.wire.calls.create(AGENT, call(1), {});
    await runner.next();
    await pause(50);
    expect(runner.grants.length).toBe(1);
    limits = { binding: { concurrency: 3 }, tool: null };
    await one.wire.calls.create(AGENT, call(2), {});
    await until("three grants", () => runner.grants.length === 3);
  });
});

describe("calls that wait for the same runners (X8)", () => {
  for (const { name, limits } of [
    { name: "without limits", limits: undefined },
    { name: "with a limit", limits: { binding: { concurrency: 1 }, tool: null } },
  ]) {
    it(`are served interactive first and subjects in turn, ${name}`, async () => {
      const site = createSite(silentLog);
      const one = await broker(site, () => limits);
      const runner = await connectRunner(one.wire, { slots: 1 });
      await one.wire.calls.create(AGENT, call(0), {});
      const busy = await runner.next();
      await one.wire.calls.create(AGENT, call(9, { subject: "ana", priority: "background" }), {});
      for (const [n, subject] of [
        [1, "ana"],
        [4, "ana"],
        [5, "ana"],
        [2, "ben"],
        [3, "cleo"],
      ] as const) {
        await one.wire.calls.create(AGENT, call(n, { subject }), {});
      }
      const order: number[] = [];
      runner.succeed(busy);
      for (let n = 0; n < 6; n += 1) {
        const grant = await runner.next();
        order.push(nOf(grant));
        runner.succeed(grant);
      }
      expect(order).toEqual([1, 2, 3, 4, 5, 9]);
    });
  }
});
