/**
 * Access: who a credential stands for, and the keys of agents and runners (features.md A1, A2).
 *
 * Invariants:
 * 1. A credential is compared by its SHA-256, in constant time; the credential itself is shown once and kept nowhere.
 * 2. Static keys (development, bootstrap) live in memory only, are never listed and cannot be revoked.
 * 3. A key of another application, binding or kind is unknown: the same answer as for one that never was.
 */
import { BrokerError } from "../domain/broker-error.js";
import type { FaultDetail } from "../domain/fault.js";
import { ID_PATTERN } from "../domain/limits.js";
import {
  type AgentPrincipal,
  type Authenticator,
  type CreatedKey,
  type KeyOperations,
  type KeyView,
  type RunnerPrincipal,
  SCOPES,
  type Scope,
} from "../domain/ports/access.js";
import type { CatalogStore } from "../domain/ports/catalog-store.js";
import type { Clock, IdSource } from "../domain/ports/clock.js";
import type { Log } from "../domain/ports/log.js";
import {
  CREDENTIAL_CHARACTERS_MAX,
  hashCredential,
  isKeyId,
  type KeyKind,
  makeCredential,
  parseCredential,
  sameHash,
} from "./credentials.js";
import { createKeyRecords, type KeyRecord } from "./key-records.js";

/** A key that the broker was started with. */
export interface StaticKey {
  readonly kind: KeyKind;
  readonly key: string;
  /** What calls and logs name it by. */
  readonly id: string;
  readonly application: string;
  /** Of an agent key; default none. */
  readonly scopes?: readonly Scope[] | undefined;
  /** Of a runner key; default `*`, any binding. */
  readonly binding?: string | undefined;
  /** Of a runner key, under development only; default false. */
  readonly mayNameSubject?: boolean | undefined;
}

export interface AccessOptions {
  readonly store: CatalogStore;
  readonly clock: Clock;
  readonly ids: IdSource;
  /** Default none. */
  readonly staticKeys?: readonly StaticKey[] | undefined;
  /** Whether a binding is registered; without it, runner keys may be made for any well-formed binding id. */
  readonly bindingExists?: ((application: string, binding: string) => Promise<boolean>) | undefined;
  readonly log: Log;
}

/** A key that stopped working. */
export interface RevokedKey {
  readonly keyId: string;
  readonly kind: KeyKind;
  readonly application: string;
}

export interface Access {
  readonly authenticator: Authenticator;
  readonly keys: KeyOperations;
  /** Whether a key still works, by its id. Rejects with `ledger_away` or `rate_limited` when that cannot be found out now. */
  isValid(keyId: string): boolean | Promise<boolean>;
  /** Called when a key is revoked here or at another broker: sessions that it opened must be closed. */
  onRevoked(listener: (key: RevokedKey) => void): { unsubscribe(): void };
  /** Stops following the store, which stays open. */
  close(): void;
}

/** Longest name of a key, in characters. */
export const KEY_NAME_CHARACTERS_MAX = 256;

interface StaticEntry {
  readonly hash: Buffer;
  readonly kind: KeyKind;
  readonly principal: AgentPrincipal | RunnerPrincipal;
}

export function createAccess(options: AccessOptions): Access {
  const { store, clock, ids, log } = options;
  const records = createKeyRecords(store, clock, log);
  const staticKeys = (options.staticKeys ?? []).map(toStaticEntry);
  /** Principals by record, so that a request allocates none. */
  const principals = new WeakMap<KeyRecord, AgentPrincipal | RunnerPrincipal>();

  async function authenticate(kind: KeyKind, credential: string): Promise<AgentPrincipal | RunnerPrincipal | undefined> {
    if (credential.length === 0 || credential.length > CREDENTIAL_CHARACTERS_MAX) return undefined;
    const hash = hashCredential(credential);
    let found: AgentPrincipal | RunnerPrincipal | undefined;
    for (const entry of staticKeys) {
      // All are compared, whichever matches.
      if (sameHash(entry.hash, hash) && entry.kind === kind) found ??= entry.principal;
    }
    if (found !== undefined) return found;

    const parsed = parseCredential(credential);
    if (parsed === undefined || parsed.kind !== kind) return undefined;
    const record = records.peek(parsed.id) ?? (await records.find(parsed.id));
    if (record === undefined || !sameHash(record.hash, hash) || record.kind !== kind || record.revoked_at !== null) return undefined;
    let principal = principals.get(record);
    if (principal === undefined) {
      principal = toPrincipal(record);
      principals.set(record, principal);
    }
    return principal;
  }

  async function create(record: Omit<KeyRecord, "id" | "hash" | "created_at" | "revoked_at">): Promise<CreatedKey> {
    const id = ids.next("key");
    const key = makeCredential(record.kind, id);
    const stored: KeyRecord = {
      ...record,
      id,
      hash: hashCredential(key),
      created_at: new Date(clock.now()).toISOString(),
      revoked_at: null,
    };
    await records.add(stored);
    log.info("key_created", { key_id: id, kind: record.kind, application: record.application, binding: record.binding || null });
    return { ...toView(stored), key };
  }

  function list(matches: (record: KeyRecord) => boolean): KeyView[] {
    return [...records.all()]
      .filter(matches)
      .sort((left, right) => (left.created_at + left.id < right.created_at + right.id ? 1 : -1))
      .map(toView);
  }

  function get(id: string, matches: (record: KeyRecord) => boolean): KeyView {
    const record = records.peek(id);
    if (record === undefined || !matches(record)) throw notFound();
    return toView(record);
  }

  async function revoke(id: string, matches: (record: KeyRecord) => boolean): Promise<KeyView> {
    const record = await records.revoke(id, new Date(clock.now()).toISOString(), matches);
    if (record === undefined) throw notFound();
    log.info("key_revoked", { key_id: id, kind: record.kind, application: record.application });
    return toView(record);
  }

  const isAgentKey = (application: string) => (record: KeyRecord) => record.kind === "agent" && record.application === application;
  const isRunnerKey = (application: string, binding: string) => (record: KeyRecord) =>
    record.kind === "runner" && record.application === application && record.binding === binding;

  return {
    authenticator: {
      async agent(credential) {
        const principal = await authenticate("agent", credential);
        return principal?.kind === "agent" ? principal : undefined;
      },
      async runner(credential) {
        const principal = await authenticate("runner", credential);
        return principal?.kind === "runner" ? principal : undefined;
      },
    },
    keys: {
      async createAgentKey(application, body) {
        const faults: FaultDetail[] = [];
        const name = checkName(body.name, faults);
        const scopes = checkScopes(body.scopes, faults);
        refuse(faults);
        return create({ kind: "agent", application, name, scopes, binding: "" });
      },
      listAgentKeys: (application) => list(isAgentKey(application)),
      getAgentKey: (application, id) => get(id, isAgentKey(application)),
      revokeAgentKey: (application, id) => revoke(id, isAgentKey(application)),
      async createRunnerKey(application, binding, body) {
        if (!ID_PATTERN.test(binding) || (await options.bindingExists?.(application, binding)) === false) throw notFound();
        const faults: FaultDetail[] = [];
        const name = checkName(body.name, faults);
        refuse(faults);
        return create({ kind: "runner", application, name, scopes: [], binding });
      },
      listRunnerKeys: (application, binding) => list(isRunnerKey(application, binding)),
      getRunnerKey: (application, binding, id) => get(id, isRunnerKey(application, binding)),
      revokeRunnerKey: (application, binding, id) => revoke(id, isRunnerKey(application, binding)),
    },
    isValid(keyId) {
      const known = records.peek(keyId);
      if (known !== undefined) return known.revoked_at === null;
      // A key that this broker was started with, or was started with when it took the call over.
      if (!isKeyId(keyId) || staticKeys.some(({ principal }) => principal.keyId === keyId)) return true;
      return records.find(keyId).then((record) => record?.revoked_at === null);
    },
    onRevoked: (listener) =>
      records.onRevoked((record) => listener({ keyId: record.id, kind: record.kind, application: record.application })),
    close: () => records.close(),
  };
}

function toStaticEntry(entry: StaticKey): StaticEntry {
  const common = { keyId: entry.id, application: entry.application };
  const principal: AgentPrincipal | RunnerPrincipal =
    entry.kind === "agent"
      ? { kind: "agent", ...common, scopes: new Set(entry.scopes ?? []) }
      : { kind: "runner", ...common, binding: entry.binding ?? "*", mayNameSubject: entry.mayNameSubject ?? false };
  return { hash: hashCredential(entry.key), kind: entry.kind, principal };
}

function toPrincipal(record: KeyRecord): AgentPrincipal | RunnerPrincipal {
  const common = { keyId: record.id, application: record.application };
  return record.kind === "agent"
    ? { kind: "agent", ...common, scopes: new Set(record.scopes) }
    : { kind: "runner", ...common, binding: record.binding, mayNameSubject: false };
}

function toView(record: KeyRecord): KeyView {
  return {
    id: record.id,
    name: record.name,
    ...(record.kind === "agent" ? { scopes: record.scopes } : { binding: record.binding }),
    created_at: record.created_at,
    revoked_at: record.revoked_at,
  };
}

function checkName(name: unknown, faults: FaultDetail[]): string | null {
  if (name === undefined || name === null) return null;
  if (typeof name === "string" && name.length > 0 && name.length <= KEY_NAME_CHARACTERS_MAX) return name;
  const actual = typeof name === "string" ? `string of ${name.length} characters` : typeof name;
  faults.push({ path: "/name", expected: `a string of 1 to ${KEY_NAME_CHARACTERS_MAX} characters`, actual });
  return null;
}

function checkScopes(scopes: unknown, faults: FaultDetail[]): readonly Scope[] {
  const expected = `at least one of ${SCOPES.join(", ")}`;
  if (!Array.isArray(scopes) || scopes.length === 0 || scopes.length > 2 * SCOPES.length) {
    faults.push({ path: "/scopes", expected, actual: Array.isArray(scopes) ? `array of ${scopes.length} items` : typeof scopes });
    return [];
  }
  scopes.forEach((scope: unknown, index) => {
    if ((SCOPES as readonly unknown[]).includes(scope)) return;
    faults.push({
      path: `/scopes/${index}`,
      expected,
      actual: typeof scope === "string" ? JSON.stringify(scope.slice(0, 40)) : typeof scope,
    });
  });
  return SCOPES.filter((scope) => scopes.includes(scope));
}

function refuse(faults: readonly FaultDetail[]): void {
  const [first] = faults;
  if (first !== undefined)
    throw new BrokerError("body_invalid", `${first.path} must be ${first.expected}, but is ${first.actual}.`, { details: faults });
}

function notFound(): BrokerError {
  return new BrokerError("not_found", "There is no such key, or it is not yours. Check its id.");
}
