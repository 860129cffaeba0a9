/** Who asks. Made by `access/`, used by the gateways and the wire. */
export const SCOPES = ["calls:write", "calls:read", "confirm", "catalog:write", "diagnostics:read", "admin"] as const;
export type Scope = (typeof SCOPES)[number];

export interface AgentPrincipal {
  readonly kind: "agent";
  readonly keyId: string;
  readonly application: string;
  readonly scopes: ReadonlySet<Scope>;
}

export interface RunnerPrincipal {
  readonly kind: "runner";
  readonly keyId: string;
  readonly application: string;
  /** `*` is the development key, which serves any binding that its runner names. */
  readonly binding: string;
  /** Only under `dev` may a runner key name the subject it acts for. */
  readonly mayNameSubject: boolean;
  /** The one subject that it may act for, where the credential proves one; default: it proves none. */
  readonly subject?: string | undefined;
  /** Wall clock, Unix milliseconds; default: it does not expire by itself. */
  readonly expiresAtMs?: number | undefined;
}

/** Checks credentials. Constant-time comparison against stored hashes. */
export interface Authenticator {
  /** `undefined`: no such key, a revoked one, or one of another kind. */
  agent(credential: string): Promise<AgentPrincipal | undefined>;
  runner(credential: string): Promise<RunnerPrincipal | undefined>;
}

export interface KeyView {
  readonly id: string;
  readonly name: string | null;
  readonly scopes?: readonly Scope[];
  readonly binding?: string;
  readonly created_at: string;
  readonly revoked_at: string | null;
}

/** `key` is shown once, at creation. */
export interface CreatedKey extends KeyView {
  readonly key: string;
}

export interface KeyOperations {
  createAgentKey(application: string, body: { readonly name?: string | undefined; readonly scopes: readonly Scope[] }): Promise<CreatedKey>;
  listAgentKeys(application: string): KeyView[];
  getAgentKey(application: string, id: string): KeyView;
  revokeAgentKey(application: string, id: string): Promise<KeyView>;
  createRunnerKey(application: string, binding: string, body: { readonly name?: string | undefined }): Promise<CreatedKey>;
  listRunnerKeys(application: string, binding: string): KeyView[];
  getRunnerKey(application: string, binding: string, id: string): KeyView;
  revokeRunnerKey(application: string, binding: string, id: string): Promise<KeyView>;
}
