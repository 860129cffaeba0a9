import { afterEach, describe, expect, it } from "vitest";
import { silentLog } from "../app/logs.js";
import { BrokerError } from "../domain/broker-error.js";
import type { Authenticator, RunnerPrincipal } from "../domain/ports/access.js";
import type { Figures } from "./figures.js";
import { AGENT, type BrokerParts, connectRunner, createSite, type ScriptedRunner, startBroker, until } from "./wire.test.kit.js";

const stops: (() => Promise<unknown> | unknown)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) {
    await stop();
  }
});

const FIGURES = { credentialLeadMs: 2_000, credentialGraceMs: 300, pingIntervalMs: 1_000 };
const CALL = { toolset: "shop", tool: "echo", arguments: {} };
const principal = (keyId: string, more: Partial<RunnerPrincipal> = {}): RunnerPrincipal => ({
  kind: "runner",
  keyId,
  application: "default",
  binding: "shop",
  mayNameSubject: false,
  ...more,
});

/** A broker that knows these credentials and no other; `check` comes before each answer. */
async function brokerWith(
  known: Record<string, Partial<RunnerPrincipal>>,
  parts: BrokerParts & { readonly figures?: Partial<Figures>; readonly check?: (credential: string) => Promise<void> } = {},
) {
  const runner: Authenticator["runner"] = async (credential) => {
    await parts.check?.(credential);
    const found = known[credential];
    return found === undefined || (found.expiresAtMs ?? Number.POSITIVE_INFINITY) <= Date.now() ? undefined : principal(credential, found);
  };
  const broker = await startBroker(createSite(silentLog), { ...FIGURES, ...parts.figures }, { ...parts, runner });
  stops.push(() => broker.stop());
  return broker;
}

const all = (runner: ScriptedRunner, kind: string): unknown[] =>
  runner.received.flatMap(({ $case, value }) => ($case === kind ? [value] : []));
const bring = (runner: ScriptedRunner, credential: string): void => runner.send({ $case: "credential", value: { credential } });
const answered = (runner: ScriptedRunner, kind: "credentialAccepted" | "protocolFault", count = 1) =>
  until(`${count} ${kind}`, () => all(runner, kind).length >= count && all(runner, kind)[count - 1]);

describe("a credential that expires (interface, Runner session 7)", () => {
  it("is asked for again before that, repeatedly, and the session goes on with its grants under the new one", async () => {
    const known = { first: { expiresAtMs: Date.now() + 1_500 }, second: { expiresAtMs: Date.now() + 60_000 } };
    const { wire } = await brokerWith(known, { figures: { credentialLeadMs: 1_200 } });
    const runner = await connectRunner(wire, { credential: "first", renews: true });
    const call = wire.calls.create(AGENT, { ...CALL, wait_seconds: 10 }, {});
    const grant = await runner.next();
    await until("two requests", () => all(runner, "credentialRequest").length >= 2);
    const [asked] = all(runner, "credentialRequest") as { expiresInMs: number }[];
    expect(asked?.expiresInMs).toBeGreaterThan(600);
    expect(asked?.expiresInMs).toBeLessThanOrEqual(1_200);
    bring(runner, "second");
    expect(((await answered(runner, "credentialAccepted")) as { expiresInMs: number }).expiresInMs).toBeGreaterThan(50_000);
    await until("the old expiry", () => Date.now() > known.first.expiresAtMs + FIGURES.credentialGraceMs + 100);
    const requests = all(runner, "credentialRequest").length;
    runner.succeed(grant);
    expect((await call).state).toBe("succeeded");
    const next = wire.calls.create(AGENT, { ...CALL, wait_seconds: 10 }, {});
    runner.succeed(await runner.next());
    expect((await next).state).toBe("succeeded");
    expect(all(runner, "credentialRequest")).toHaveLength(requests);
    expect(all(runner, "welcome")).toHaveLength(1);
  });

  it("closes the session with 4401 after its grace, in which it gets no grant and its receipts are taken", async () => {
    const { wire } = await brokerWith({ first: { expiresAtMs: Date.now() + 400 } }, { figures: { credentialGraceMs: 800 } });
    const runner = await connectRunner(wire, { credential: "first", renews: true });
    const call = wire.calls.create(AGENT, { ...CALL, wait_seconds: 10 }, {});
    const grant = await runner.next();
    await until("a request that says expired", () =>
      all(runner, "credentialRequest").some((asked) => (asked as { expiresInMs: number }).expiresInMs === 0),
    );
    runner.succeed(grant);
    expect((await call).state).toBe("succeeded");
    const waiting = await wire.calls.create(AGENT, { ...CALL, wait_seconds: 0 }, {});
    expect(await runner.closed).toMatchObject({ code: 4401 });
    expect(runner.grants).toHaveLength(1);
    expect((await wire.calls.get(AGENT, waiting.id, {})).state).toBe("queued");
    expect(wire.inspect()).toMatchObject({ sessions: 0 });
  });

  it("may still be replaced within its grace, and what waited is granted at once", async () => {
    const { wire } = await brokerWith({ first: { expiresAtMs: Date.now() + 200 }, second: {} }, { figures: { credentialGraceMs: 5_000 } });
    const runner = await connectRunner(wire, { credential: "first", renews: true });
    await until("expiry", () => all(runner, "credentialRequest").some((asked) => (asked as { expiresInMs: number }).expiresInMs === 0));
    const call = wire.calls.create(AGENT, { ...CALL, wait_seconds: 10 }, {});
    bring(runner, "second");
    expect(await answered(runner, "credentialAccepted")).toEqual({ expiresInMs: 0 });
    runner.succeed(await runner.next());
    expect((await call).state).toBe("succeeded");
  });

  it("is not asked for from a runner that does not know the request, whose session ends all the same", async () => {
    const { wire } = await brokerWith({ first: { expiresAtMs: Date.now() + 200 } });
    const runner = await connectRunner(wire, { credential: "first" });
    expect(await runner.closed).toMatchObject({ code: 4401 });
    expect(all(runner, "credentialRequest")).toEqual([]);
  });
});

describe("a credential in band", () => {
  it("takes the place of a key that is then revoked: the session survives, and ends when the new one is revoked", async () => {
    const { wire } = await brokerWith({ first: {}, second: {} });
    const runner = await connectRunner(wire, { credential: "first" });
    bring(runner, "second");
    await answered(runner, "credentialAccepted");
    wire.sessions.keyRevoked("first");
    const call = wire.calls.create(AGENT, { ...CALL, wait_seconds: 10 }, {});
    runner.succeed(await runner.next());
    expect((await call).state).toBe("succeeded");
    wire.sessions.keyRevoked("second");
    expect(await runner.closed).toMatchObject({ code: 4401 });
  });

  it.each([
    ["is wrong", {}, "credential_invalid"],
    ["has expired", { second: { expiresAtMs: 1 } }, "credential_invalid"],
    ["is for another binding", { second: { binding: "warehouse" } }, "credential_not_permitted"],
    ["is for another application", { second: { application: "other" } }, "credential_not_permitted"],
  ] satisfies [string, Record<string, Partial<RunnerPrincipal>>, string][])(
    "that %s is refused, and the session goes on with the one it has (I8)",
    async (_, second, code) => {
      const { wire } = await brokerWith({ first: {}, ...second });
      const runner = await connectRunner(wire, { credential: "first" });
      bring(runner, "second");
      expect(await answered(runner, "protocolFault")).toMatchObject({ code });
      bring(runner, "");
      expect(await answered(runner, "protocolFault", 2)).toMatchObject({ code: "credential_invalid" });
      const call = wire.calls.create(AGENT, { ...CALL, wait_seconds: 10 }, {});
      runner.succeed(await runner.next());
      expect((await call).state).toBe("succeeded");
      wire.sessions.keyRevoked("first");
      expect(await runner.closed).toMatchObject({ code: 4401 });
    },
  );

  it("must be for the session's own subject where runners act for one (I8)", async () => {
    const known = { ada: { subject: "ada" }, ada2: { subject: "ada" }, bob: { subject: "bob" }, none: {} };
    const getBinding = async (_: string, id: string) => ({
      id,
      name: id,
      kind: "browser" as const,
      created_at: "2026-01-01T00:00:00.000Z",
    });
    const { wire } = await brokerWith(known, { catalog: { getBinding } });
    const runner = await connectRunner(wire, { credential: "ada", subject: "ada" });
    bring(runner, "bob");
    expect(await answered(runner, "protocolFault")).toMatchObject({ code: "credential_not_permitted" });
    bring(runner, "none");
    expect(await answered(runner, "protocolFault", 2)).toMatchObject({ code: "credential_not_permitted" });
    bring(runner, "ada2");
    await answered(runner, "credentialAccepted");
  });

  it("that is revoked while it is checked is not taken", async () => {
    let pass: () => void = () => undefined;
    const checking = new Promise<void>((resolve) => {
      pass = resolve;
    });
    const { wire } = await brokerWith(
      { first: {}, second: {} },
      { check: (credential) => (credential === "second" ? checking : Promise.resolve()) },
    );
    const runner = await connectRunner(wire, { credential: "first" });
    bring(runner, "second");
    bring(runner, "second");
    expect(await answered(runner, "protocolFault")).toMatchObject({ code: "rate_limited" });
    wire.sessions.keyRevoked("second");
    pass();
    expect(await answered(runner, "protocolFault", 2)).toMatchObject({ code: "credential_invalid" });
    expect(all(runner, "credentialAccepted")).toEqual([]);
  });

  it("that cannot be checked now is refused with the reason, and nothing is held of it", async () => {
    const failures: Record<string, Error> = {
      limited: new BrokerError("rate_limited", "too many unknown keys"),
      broken: new Error("the store is away"),
    };
    const check = async (credential: string): Promise<void> => {
      const failure = failures[credential];
      if (failure !== undefined) throw failure;
    };
    const { wire } = await brokerWith({ first: {} }, { check });
    const runner = await connectRunner(wire, { credential: "first" });
    bring(runner, "limited");
    expect(await answered(runner, "protocolFault")).toMatchObject({ code: "rate_limited" });
    bring(runner, "broken");
    expect(await answered(runner, "protocolFault", 2)).toMatchObject({ code: "ledger_away" });
    runner.close();
    await until("the end", () => wire.inspect().sessions === 0);
  });
});
