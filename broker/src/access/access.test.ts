import { beforeEach, describe, expect, it } from "vitest";
import { BrokerError } from "../domain/broker-error.js";
import type { Log, LogFields } from "../domain/ports/log.js";
import { type Access, type AccessOptions, createAccess, type RevokedKey, type StaticKey } from "./access.js";
import { BOOTSTRAP_KEY_CHARACTERS_MIN, BootstrapKeyError, checkBootstrapKey } from "./bootstrap-key.js";
import { CREDENTIAL_CHARACTERS_MAX } from "./credentials.js";
import { READS_PER_SECOND_MAX } from "./key-records.js";
import { SharedStore } from "./testing/shared-store.js";

describe("access", () => {
  let shared: SharedStore;
  let access: Access;
  let monotonic: number;
  let now: number;
  let logged: string[];
  let lastId: number;

  function open(options: Partial<AccessOptions> = {}): Access {
    const write = (event: string, fields?: LogFields): void => {
      logged.push(`${event} ${JSON.stringify(fields ?? {})}`);
    };
    const log: Log = { debug: write, info: write, warn: write, error: write };
    return createAccess({
      store: shared.open(),
      clock: {
        now: () => {
          now += 1_000;
          return now;
        },
        monotonic: () => monotonic,
        schedule: () => ({ cancel: () => undefined }),
      },
      ids: {
        next(prefix) {
          lastId += 1;
          return `${prefix}_${String(lastId).padStart(26, "a")}`;
        },
        random: () => 0.5,
      },
      log,
      ...options,
    });
  }

  beforeEach(() => {
    shared = new SharedStore();
    monotonic = 0;
    now = Date.parse("2026-01-01T00:00:00Z");
    logged = [];
    lastId = 0;
    access = open();
  });

  async function refusal(task: () => unknown): Promise<BrokerError> {
    try {
      await task();
    } catch (error) {
      if (error instanceof BrokerError) return error;
      throw error;
    }
    throw new Error("was not refused");
  }

  /** A well-formed credential that no key has. */
  const wrong = (index: number, letter = "a"): string => `tr${letter}_${String(index).padStart(26, "b")}_${"x".repeat(43)}`;

  describe("keys", () => {
    it("A1: an agent key stands for its application and scopes, a runner key for its binding", async () => {
      const agent = await access.keys.createAgentKey("default", { name: "CI", scopes: ["calls:write", "calls:read", "calls:write"] });
      const runner = await access.keys.createRunnerKey("default", "shop", {});
      expect(agent.key).toMatch(/^tra_[a-z0-9]{26}_[A-Za-z0-9_-]{43}$/);
      expect(runner.key).toMatch(/^trr_[a-z0-9]{26}_[A-Za-z0-9_-]{43}$/);
      expect(await access.authenticator.agent(agent.key)).toEqual({
        kind: "agent",
        keyId: agent.id,
        application: "default",
        scopes: new Set(["calls:write", "calls:read"]),
      });
      expect(await access.authenticator.runner(runner.key)).toEqual({
        kind: "runner",
        keyId: runner.id,
        application: "default",
        binding: "shop",
        mayNameSubject: false,
      });
      expect(await access.authenticator.runner(agent.key)).toBeUndefined();
      expect(await access.authenticator.agent(runner.key)).toBeUndefined();
    });

    it("A1: only a hash is stored, the key is shown once, and no log line holds it", async () => {
      const created = await access.keys.createAgentKey("default", { scopes: ["admin"] });
      const secret = created.key.split("_")[2] ?? "";
      expect(secret.length).toBeGreaterThan(0);
      const stored = [...shared.documents.values()].map(({ path, value }) => path + value).join();
      const views = JSON.stringify([access.keys.getAgentKey("default", created.id), access.keys.listAgentKeys("default")]);
      for (const text of [stored, views, logged.join()]) {
        expect(text).toContain(created.id);
        expect(text).not.toContain(secret);
      }
    });

    it("two keys never have the same secret", async () => {
      const keys = await Promise.all(Array.from({ length: 50 }, () => access.keys.createAgentKey("default", { scopes: ["confirm"] })));
      expect(new Set(keys.map(({ key }) => key.slice(-43))).size).toBe(50);
    });

    it.each(["", "tra_", "x".repeat(CREDENTIAL_CHARACTERS_MAX + 1), "Bearer x", "tra_../x_y", "tra___proto___", "\u0000", "ü".repeat(400)])(
      "the credential %j stands for nobody and asks the store nothing",
      async (credential) => {
        expect(await access.authenticator.agent(credential)).toBeUndefined();
        expect(await access.authenticator.runner(credential)).toBeUndefined();
        expect(shared.reads).toBe(0);
      },
    );

    it("a credential with the right id and another secret stands for nobody", async () => {
      const { key } = await access.keys.createAgentKey("default", { scopes: ["admin"] });
      for (const forged of [
        `${key.slice(0, -1)}${key.endsWith("A") ? "B" : "A"}`,
        key.replace("tra_", "trr_"),
        `${key}A`,
        key.slice(0, -1),
        key.toUpperCase(),
      ]) {
        expect(await access.authenticator.agent(forged)).toBeUndefined();
        expect(await access.authenticator.runner(forged)).toBeUndefined();
      }
    });

    it("A1: keys of other brokers work at once, before any notice of them", async () => {
      const other = open();
      const { key } = await other.keys.createRunnerKey("default", "shop", {});
      expect((await access.authenticator.runner(key))?.binding).toBe("shop");
    });

    it("are there again after a restart", async () => {
      const created = await access.keys.createAgentKey("default", { scopes: ["admin"] });
      access.close();
      expect((await open().authenticator.agent(created.key))?.keyId).toBe(created.id);
    });
  });

  describe("revocation", () => {
    it("A1: stops the key everywhere as soon as the change is seen, tells each broker once, and keeps the first time", async () => {
      const other = open();
      const told: RevokedKey[] = [];
      const toldOther: RevokedKey[] = [];
      access.onRevoked((key) => told.push(key));
      other.onRevoked((key) => toldOther.push(key));
      const { id, key } = await access.keys.createRunnerKey("default", "shop", {});
      shared.deliver();
      expect(await other.authenticator.runner(key)).toBeDefined();
      const revoked = await access.keys.revokeRunnerKey("default", "shop", id);
      expect(revoked.revoked_at).not.toBeNull();
      expect(await access.authenticator.runner(key)).toBeUndefined();
      shared.deliver();
      expect(await other.authenticator.runner(key)).toBeUndefined();
      expect((await other.keys.revokeRunnerKey("default", "shop", id)).revoked_at).toBe(revoked.revoked_at);
      shared.deliver();
      const expected = [{ keyId: id, kind: "runner", application: "default" }];
      expect([told, toldOther]).toEqual([expected, expected]);
      expect(await open().authenticator.runner(key)).toBeUndefined();
    });

    it("twelve revocations at two brokers agree on one time", async () => {
      const other = open();
      const { id } = await access.keys.createAgentKey("default", { scopes: ["admin"] });
      const views = await Promise.all(
        Array.from({ length: 12 }, (_, index) => (index % 2 === 0 ? access : other).keys.revokeAgentKey("default", id)),
      );
      expect(new Set(views.map(({ revoked_at }) => revoked_at)).size).toBe(1);
    });

    it("is known by the key's id, also where the key was never used; a key that a broker was started with goes on (G7)", async () => {
      const { id } = await access.keys.createAgentKey("default", { scopes: ["calls:write"] });
      expect([await access.isValid(id), await open().isValid(id), await access.isValid("dev_agent")]).toEqual([true, true, true]);
      await access.keys.revokeAgentKey("default", id);
      expect([await access.isValid(id), await open().isValid(id), await access.isValid("dev_agent")]).toEqual([false, false, true]);
      expect(await open().isValid(`key_${"z".repeat(26)}`)).toBe(false);
    });

    it("a record that vanishes or cannot be read opens nothing, and counts as revoked", async () => {
      const told: string[] = [];
      const store = shared.open();
      access = open({ store });
      access.onRevoked(({ keyId }) => told.push(keyId));
      const gone = await access.keys.createAgentKey("default", { scopes: ["admin"] });
      const broken = await access.keys.createAgentKey("default", { scopes: ["admin"] });
      await store.delete(`=keys/${gone.id}`);
      await store.put(`=keys/${broken.id}`, '{"v":2}', store.peek(`=keys/${broken.id}`)?.revision ?? 0);
      expect(await access.authenticator.agent(gone.key)).toBeUndefined();
      expect(await access.authenticator.agent(broken.key)).toBeUndefined();
      expect(told).toEqual([gone.id, broken.id]);
    });

    it("a listener that throws keeps nobody from hearing", async () => {
      const told: string[] = [];
      access.onRevoked(() => {
        throw new Error("broken on purpose");
      });
      access.onRevoked(({ keyId }) => told.push(keyId));
      const { id } = await access.keys.createAgentKey("default", { scopes: ["admin"] });
      await access.keys.revokeAgentKey("default", id);
      expect(told).toEqual([id]);
    });
  });

  describe("walls", () => {
    it("A2: keys of another application, binding or kind are not found, with the same words as unknown ones", async () => {
      const agent = await access.keys.createAgentKey("default", { scopes: ["admin"] });
      const runner = await access.keys.createRunnerKey("default", "shop", {});
      const refusals = await Promise.all(
        [
          () => access.keys.getAgentKey("default", "key_unknown000"),
          () => access.keys.getAgentKey("other", agent.id),
          () => access.keys.getAgentKey("default", runner.id),
          () => access.keys.revokeAgentKey("other", agent.id),
          () => access.keys.revokeAgentKey("default", runner.id),
          () => access.keys.revokeAgentKey("default", "../x"),
          () => access.keys.getRunnerKey("default", "office", runner.id),
          () => access.keys.getRunnerKey("other", "shop", runner.id),
          () => access.keys.revokeRunnerKey("default", "office", runner.id),
          () => access.keys.revokeRunnerKey("default", "", agent.id),
        ].map((task) => refusal(task)),
      );
      expect(new Set(refusals.map(({ code, message }) => `${code} ${message}`)).size).toBe(1);
      expect(refusals[0]?.code).toBe("not_found");
      expect(access.keys.listAgentKeys("other")).toEqual([]);
      expect(access.keys.listRunnerKeys("default", "office")).toEqual([]);
      expect(await access.authenticator.agent(agent.key)).toBeDefined();
    });

    it("lists keys newest first, without those of the other kind", async () => {
      const ids: string[] = [];
      for (let index = 0; index < 3; index += 1) ids.push((await access.keys.createRunnerKey("default", "shop", { name: `n${index}` })).id);
      await access.keys.createAgentKey("default", { scopes: ["admin"] });
      expect(access.keys.listRunnerKeys("default", "shop").map(({ id }) => id)).toEqual(ids.reverse());
    });

    it("refuses unknown scopes, none, and names that are empty or too long, naming each", async () => {
      const bodies = [
        { scopes: [] },
        { scopes: ["root"] },
        { scopes: ["admin", 5] },
        { scopes: "admin" },
        {},
        { scopes: ["admin"], name: "" },
        { scopes: ["admin"], name: "x".repeat(257) },
      ];
      const paths: string[] = [];
      for (const body of bodies) {
        const error = await refusal(() => access.keys.createAgentKey("default", body as never));
        paths.push(`${error.code} ${error.details.map(({ path }) => path).join()}`);
      }
      const of = (path: string): string => `body_invalid ${path}`;
      expect(paths).toEqual([of("/scopes"), of("/scopes/0"), of("/scopes/1"), of("/scopes"), of("/scopes"), of("/name"), of("/name")]);
    });

    it("makes no runner key for a binding that is not registered, or not yours", async () => {
      access = open({ bindingExists: async (application, binding) => application === "default" && binding === "shop" });
      await access.keys.createRunnerKey("default", "shop", {});
      for (const [application, binding] of [
        ["default", "office"],
        ["other", "shop"],
        ["default", "A/b"],
      ] as const) {
        expect((await refusal(() => access.keys.createRunnerKey(application, binding, {}))).code).toBe("not_found");
      }
    });
  });

  describe("floods", () => {
    it("A7: wrong keys read the store a bounded number of times a second, and are then told to come back", async () => {
      const codes = new Map<string, number>();
      for (let index = 0; index < 1_000; index += 1) {
        const outcome = await access.authenticator.agent(wrong(index)).then(
          () => "nobody",
          (error: unknown) => (error instanceof BrokerError ? error.code : "other"),
        );
        codes.set(outcome, (codes.get(outcome) ?? 0) + 1);
      }
      expect(shared.reads).toBe(READS_PER_SECOND_MAX);
      expect(Object.fromEntries(codes)).toEqual({ nobody: READS_PER_SECOND_MAX, rate_limited: 1_000 - READS_PER_SECOND_MAX });
      monotonic += 1_000;
      expect(await access.authenticator.agent(wrong(5_000))).toBeUndefined();
    });

    it("A7: one wrong key over and over reads the store once a second, also when all come at once", async () => {
      await Promise.all(Array.from({ length: 500 }, () => access.authenticator.agent(wrong(1))));
      for (let index = 0; index < 500; index += 1) await access.authenticator.agent(wrong(1));
      expect(shared.reads).toBe(1);
      monotonic += 1_000;
      await access.authenticator.agent(wrong(1));
      expect(shared.reads).toBe(2);
    });

    it("known keys work through a flood and while the store is away, and cost no reads", async () => {
      const { key } = await access.keys.createAgentKey("default", { scopes: ["admin"] });
      for (let index = 0; index < 100; index += 1) await access.authenticator.agent(wrong(index)).catch(() => undefined);
      shared.away = true;
      const { reads } = shared;
      const first = await access.authenticator.agent(key);
      expect(await access.authenticator.agent(key)).toBe(first);
      expect(first).toBeDefined();
      expect(shared.reads).toBe(reads);
      monotonic += 1_000;
      expect((await refusal(() => access.authenticator.agent(wrong(9_999)))).code).toBe("ledger_away");
    });
  });

  describe("static keys", () => {
    const staticKeys: StaticKey[] = [
      { kind: "agent", id: "bootstrap", key: "an-operator-chose-this-key", application: "default", scopes: ["admin"] },
      { kind: "runner", id: "dev-runner", key: "development-runner-key-0001", application: "default", mayNameSubject: true },
    ];

    it("stand for what they were given, are stored and listed nowhere, and cannot be revoked", async () => {
      access = open({ staticKeys });
      expect(await access.authenticator.agent("an-operator-chose-this-key")).toEqual({
        kind: "agent",
        keyId: "bootstrap",
        application: "default",
        scopes: new Set(["admin"]),
      });
      expect(await access.authenticator.runner("development-runner-key-0001")).toEqual({
        kind: "runner",
        keyId: "dev-runner",
        application: "default",
        binding: "*",
        mayNameSubject: true,
      });
      expect(await access.authenticator.runner("an-operator-chose-this-key")).toBeUndefined();
      expect(await access.authenticator.agent("an-operator-chose-this-kez")).toBeUndefined();
      expect(shared.documents.size).toBe(0);
      expect(access.keys.listAgentKeys("default")).toEqual([]);
      expect((await refusal(() => access.keys.revokeAgentKey("default", "bootstrap"))).code).toBe("not_found");
    });
  });

  describe("bootstrap keys", () => {
    const code = (key: string): string => {
      try {
        checkBootstrapKey(key);
        return "accepted";
      } catch (error) {
        if (!(error instanceof BootstrapKeyError)) throw error;
        if (key.length > 3) expect(error.message).not.toContain(key);
        return error.code;
      }
    };

    it("are accepted from 24 characters, refused when weak or unfit for a header, and never repeated in the message", () => {
      expect(BOOTSTRAP_KEY_CHARACTERS_MIN).toBe(24);
      expect(code("abcdefghijklmnopqrstuvwx")).toBe("accepted");
      expect(code("abcdefghijklmnopqrstuvw")).toBe("too_short");
      expect(code("")).toBe("too_short");
      expect(code("x".repeat(513))).toBe("too_long");
      expect(code("a".repeat(30))).toBe("too_uniform");
      expect(code("abcdefghijklm nopqrstuvwx")).toBe("not_printable");
      expect(code("abcdefghijklmnopqrstuvwxü")).toBe("not_printable");
      expect(code("abcdefghijklmnopqrstuvwx\n")).toBe("not_printable");
    });
  });
});
