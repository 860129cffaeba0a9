import { afterEach, describe, expect, it } from "vitest";
import { CredentialError, RunnerConfigError } from "./index.js";
import { serve, stopRunners, until, work } from "./runner.test.kit.js";
import { createManualClock } from "./testing.js";

afterEach(stopRunners);

const tools = [work(() => "done")];
const request = { $case: "credentialRequest", value: { expiresInMs: 60_000 } } as const;
const accepted = { $case: "credentialAccepted", value: { expiresInMs: 0 } } as const;
const fault = (code: string) => ({ $case: "protocolFault", value: { code, message: "no", callId: "" } }) as const;

describe("a credential that the broker wants renewed", () => {
  it("is asked of the option `token`, and sent on the session that is up, which goes on", async () => {
    let key = "first";
    const { session, runner, events } = await serve({ tools, token: () => key });
    expect((await session.hello()).renewsCredentials).toBe(true);
    key = "second";
    session.send(request);
    expect(await session.next("credential")).toEqual({ credential: "second" });
    session.send(accepted);
    await until("the acceptance", () => events.some(({ event }) => event === "credential_renewed"));
    await session.call({ tool: "work" });
    expect(runner.state.kind).toBe("ready");
  });

  it("is not sent while the source gives the old one, and is when the broker asks again", async () => {
    let key = "first";
    const { session, events } = await serve({ tools, token: async () => key });
    session.send(request);
    await until("the warning", () => events.some(({ event }) => event === "credential_not_renewed"));
    expect(session.all("credential")).toEqual([]);
    key = "second";
    session.send(request);
    expect(await session.next("credential")).toEqual({ credential: "second" });
  });

  it("leaves the session alone when its source throws", async () => {
    let fails = false;
    const source = () => {
      if (fails) throw new Error("the vault is closed");
      return "first";
    };
    const { session, runner, events } = await serve({ tools, token: source });
    fails = true;
    session.send(request);
    const warned = await until("the warning", () => events.find(({ event }) => event === "credential_not_renewed"));
    expect(warned.fields.message).toContain("the vault is closed");
    fails = false;
    await session.call({ tool: "work" });
    expect(runner.state.kind).toBe("ready");
  });

  it("is asked for again after a source that never answered, on the session and for the next one", async () => {
    const clock = createManualClock();
    let asked = 0;
    const never = new Promise<string>(() => {});
    const { session, events, broker, runner } = await serve({
      tools,
      clock,
      token: () => (++asked === 2 || asked === 4 ? never : `key_${asked}`),
    });
    session.send(request);
    await session.settleFrames();
    clock.advance(30_000);
    const warned = await until("the warning", () => events.find(({ event }) => event === "credential_not_renewed"));
    expect(warned.fields.message).toContain("30000 ms");
    session.send(request);
    expect(await session.next("credential")).toEqual({ credential: "key_3" });
    session.send(accepted);
    await session.settleFrames();
    session.sever();
    await until("the pause", () => runner.state.kind === "retrying");
    clock.advance(501);
    await until("the fourth question", () => asked === 4);
    clock.advance(30_000);
    await until("the second pause", () => runner.state.kind === "retrying");
    clock.advance(1_001);
    expect((await broker.nextSession()).credential).toBe("key_5");
  });

  it("is asked for once at a time, however often the broker asks", async () => {
    let asked = 0;
    let release: (key: string) => void = () => {};
    const later = new Promise<string>((resolve) => {
      release = resolve;
    });
    const { session } = await serve({ tools, token: () => (asked++ === 0 ? "first" : later) });
    for (let count = 0; count < 10; count++) session.send(request);
    await session.settleFrames();
    expect(asked).toBe(2);
    release("second");
    expect(await session.next("credential")).toEqual({ credential: "second" });
    expect(session.all("credential")).toHaveLength(1);
  });
});

describe("refreshCredential", () => {
  it("replaces a fixed token, for the sessions that follow too", async () => {
    const { session, runner, broker } = await serve({ tools, token: "first" });
    const refreshed = runner.refreshCredential("second");
    expect(await session.next("credential")).toEqual({ credential: "second" });
    session.send(accepted);
    expect(await refreshed).toBe("accepted");
    session.sever();
    const next = await broker.nextSession();
    expect(next.credential).toBe("second");
  });

  it.each(["credential_invalid", "credential_not_permitted", "rate_limited", "ledger_away"])(
    "rejects with %s when the broker says so, and keeps the one it had",
    async (code) => {
      const { session, runner, broker } = await serve({ tools, token: "first" });
      const refreshed = runner.refreshCredential("second");
      await session.next("credential");
      session.send(fault(code));
      await expect(refreshed).rejects.toMatchObject({ name: "CredentialError", code });
      expect(await refreshed.catch((error: unknown) => error)).toBeInstanceOf(CredentialError);
      session.sever();
      expect((await broker.nextSession()).credential).toBe("first");
    },
  );

  it("takes no other fault for the answer", async () => {
    const { session, runner } = await serve({ tools, token: "first" });
    const refreshed = runner.refreshCredential("second");
    await session.next("credential");
    session.send(fault("frame_invalid"));
    session.send(accepted);
    expect(await refreshed).toBe("accepted");
  });

  it("is for the next session when this one ends before the answer, or its broker takes none in band", async () => {
    const { session, runner, broker } = await serve({ tools, token: "first" });
    const refreshed = runner.refreshCredential("second");
    await session.next("credential");
    session.sever();
    expect(await refreshed).toBe("next_session");
    const older = await broker.nextSession();
    expect(older.credential).toBe("second");
    await older.welcome({ renewsCredentials: false });
    await until("ready", () => runner.state.kind === "ready");
    expect(await runner.refreshCredential("third")).toBe("next_session");
    expect(older.all("credential")).toEqual([]);
    older.sever();
    expect((await broker.nextSession()).credential).toBe("third");
  });

  it("rejects when no answer comes, and the next one is sent all the same", async () => {
    const clock = createManualClock();
    const { session, runner } = await serve({ tools, token: "first", clock });
    const refreshed = runner.refreshCredential("second");
    await session.next("credential");
    const failed = expect(refreshed).rejects.toMatchObject({ code: "credential_unanswered" });
    clock.advance(15_000);
    await failed;
    const again = runner.refreshCredential("third");
    expect(await session.next("credential")).toEqual({ credential: "third" });
    session.send(accepted);
    expect(await again).toBe("accepted");
  });

  it("sends two that are asked for at once one after the other", async () => {
    const { session, runner } = await serve({ tools, token: "first" });
    const both = [runner.refreshCredential("second"), runner.refreshCredential("third")];
    await session.next("credential");
    await session.settleFrames();
    expect(session.all("credential")).toHaveLength(1);
    session.send(fault("credential_invalid"));
    await expect(both[0]).rejects.toMatchObject({ code: "credential_invalid" });
    expect(await session.next("credential")).toEqual({ credential: "third" });
    session.send(accepted);
    expect(await both[1]).toBe("accepted");
  });

  it.each([[""], [42], [null]])("refuses %j", async (token) => {
    const { runner } = await serve({ tools });
    await expect(runner.refreshCredential(token as unknown as string)).rejects.toBeInstanceOf(RunnerConfigError);
  });
});
