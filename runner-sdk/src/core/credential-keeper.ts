/**
 * Which credential a runner has, and how a newer one takes its place while a session is up.
 *
 * Invariants: one credential at a time is on its way to the broker, and its answer is told from those of other frames; a credential
 * that was refused is never kept; one that no session could take is used by the next one; what the session has is not sent again
 * when the broker asks for a newer one.
 */
import { type Clock, pause } from "./clock.js";
import { CredentialError, messageOf, RunnerConfigError } from "./errors.js";
import type { EventLog } from "./log.js";

/** What became of a new credential: the broker took it, or no session could take it and the next one will use it. */
export type CredentialUse = "accepted" | "next_session";

/** How a credential reaches the broker of the session that is up. */
export interface CredentialLink {
  /** False: this broker takes none in band. */
  readonly renews: boolean;
  send(credential: string): void;
}

const ANSWER_MS = 15_000;
/** A source that says nothing for so long is asked again: it may wait on a connection that is dead. */
const SOURCE_MS = 30_000;
/** Faults with these codes answer a credential, when one is on its way. */
const REFUSALS: readonly string[] = ["credential_invalid", "credential_not_permitted", "rate_limited", "ledger_away"];

type Answer =
  | { readonly kind: "accepted" | "ended" | "unanswered" }
  | { readonly kind: "refused"; readonly code: string; readonly message: string };

export class CredentialKeeper {
  /** Given by `refreshCredential`, in place of the option `token`. */
  #given: string | null = null;
  /** What the present session has. */
  #inUse: string | null = null;
  #link: CredentialLink | null = null;
  #answer: ((answer: Answer) => void) | null = null;
  #turn: Promise<unknown> = Promise.resolve();
  #asked = false;

  constructor(private readonly context: { readonly source: () => Promise<string>; readonly clock: Clock; readonly log: EventLog }) {}

  /** The credential to use now. Rejects when its source fails, or does not answer in time. */
  async current(): Promise<string> {
    if (this.#given !== null) return this.#given;
    const { source, clock } = this.context;
    const over = new AbortController();
    const late = pause(clock, SOURCE_MS, over.signal).then(() => {
      throw new Error(`the function given as token did not answer within ${SOURCE_MS} ms`);
    });
    // Also when it is late no more.
    late.catch(() => undefined);
    try {
      return await Promise.race([source(), late]);
    } finally {
      over.abort();
    }
  }

  /** What the newest session has or had; null before the first one. */
  get inUse(): string | null {
    return this.#inUse;
  }

  /** A session was welcomed that was made with `credential`. */
  attach(link: CredentialLink, credential: string): void {
    this.#link = link;
    this.#inUse = credential;
  }

  /** The session is over. Idempotent. */
  detach(): void {
    this.#link = null;
    this.#answer?.({ kind: "ended" });
  }

  /** The broker asks for a newer credential, and does so again until it has one. Never rejects. */
  async requested(expiresInMs: number): Promise<void> {
    const { log } = this.context;
    if (this.#asked) return;
    this.#asked = true;
    try {
      await this.#inTurn(async () => {
        const next = await this.current();
        if (next !== this.#inUse) await this.#replace(next);
        else
          log.warn("credential_not_renewed", {
            expires_in_ms: expiresInMs,
            message: "the option token still gives the credential that expires",
          });
      });
    } catch (error) {
      log.warn("credential_not_renewed", { expires_in_ms: expiresInMs, message: messageOf(error) });
    } finally {
      this.#asked = false;
    }
  }

  /** Hands over `token`, or what the option `token` gives now. @throws CredentialError, RunnerConfigError, and what the option throws */
  async refresh(token?: string): Promise<CredentialUse> {
    if (token !== undefined && (typeof token !== "string" || token === "")) {
      throw new RunnerConfigError("options_invalid", "the credential given to refreshCredential must be a text, and not empty");
    }
    return this.#inTurn(async () => {
      const use = await this.#replace(token ?? (await this.current()));
      if (token !== undefined) this.#given = token;
      return use;
    });
  }

  accepted(): void {
    this.#answer?.({ kind: "accepted" });
  }

  /** False: the fault is not the answer to a credential. */
  refused(code: string, message: string): boolean {
    if (this.#answer === null || !REFUSALS.includes(code)) return false;
    this.#answer({ kind: "refused", code, message });
    return true;
  }

  #inTurn<T>(job: () => Promise<T>): Promise<T> {
    const mine = this.#turn.then(job);
    this.#turn = mine.catch(() => undefined);
    return mine;
  }

  async #replace(next: string): Promise<CredentialUse> {
    const link = this.#link;
    if (link === null || !link.renews) return "next_session";
    const over = new AbortController();
    const answer = await new Promise<Answer>((resolve) => {
      this.#answer = resolve;
      void pause(this.context.clock, ANSWER_MS, over.signal).then(() => resolve({ kind: "unanswered" }));
      link.send(next);
    });
    this.#answer = null;
    over.abort();
    switch (answer.kind) {
      case "accepted":
        if (this.#link === link) this.#inUse = next;
        this.context.log.info("credential_renewed");
        return "accepted";
      case "ended":
        return "next_session";
      case "refused":
        throw new CredentialError(answer.code, `the broker refused the credential (${answer.code}): ${answer.message}`);
      case "unanswered":
        throw new CredentialError("credential_unanswered", `the broker did not answer the credential within ${ANSWER_MS} ms: try again`);
    }
  }
}
