/** Bindings: where tools run (features.md C1). Registering one says nothing about being connected; its kind is fixed for good. */
import { BrokerError } from "../domain/broker-error.js";
import type { FaultDetail } from "../domain/fault.js";
import { ID_PATTERN, LIMIT_MAX } from "../domain/limits.js";
import { BINDING_KINDS, type BindingKind, type BindingView, type Limits, type Page, type PageRequest } from "../domain/ports/catalog.js";
import type { CatalogStore } from "../domain/ports/catalog-store.js";
import type { Clock } from "../domain/ports/clock.js";
import type { Log } from "../domain/ports/log.js";
import { type BindingDocument, decodeBinding, encodeDocument, paths, withStore } from "./document-codec.js";
import { createLruCache } from "./lru-cache.js";
import { cutPage, newestFirst } from "./pages.js";
import { renderActual } from "./schema/render-actual.js";

/** Longest display name, in characters. */
export const BINDING_NAME_CHARACTERS_MAX = 256;
const PARSED_BINDINGS_MAX = 1_024;

export interface Bindings {
  put(
    application: string,
    id: string,
    body: { readonly name: string; readonly kind: BindingKind; readonly limits?: Limits | undefined },
  ): Promise<{ readonly created: boolean; readonly binding: BindingView }>;
  /** From memory, else from the store; undefined when there is none. */
  find(application: string, id: string): Promise<BindingView | undefined>;
  list(application: string, page: PageRequest): Page<BindingView>;
}

export interface BindingsOptions {
  readonly store: CatalogStore;
  readonly clock: Pick<Clock, "now">;
  readonly log: Log;
}

export function createBindings({ store, clock, log }: BindingsOptions): Bindings {
  /** By the revision of its document, so that a change is never served from here. */
  const parsed = createLruCache<{ readonly revision: number; readonly view: BindingView }>(PARSED_BINDINGS_MAX);

  function toView(
    id: string,
    document: { readonly path: string; readonly value: string; readonly revision: number },
  ): BindingView | undefined {
    const known = parsed.get(document.path);
    if (known?.revision === document.revision) return known.view;
    const decoded = decodeBinding(document.value);
    if (decoded === undefined) {
      log.error("catalog_document_unreadable", { path: document.path });
      return undefined;
    }
    const view: BindingView = { id, ...decoded };
    parsed.set(document.path, { revision: document.revision, view });
    return view;
  }

  return {
    async put(application, id, body) {
      checkBinding(id, body);
      const path = paths.binding(application, id);
      for (;;) {
        const document = await withStore(() => store.read(path));
        const present = document === undefined ? undefined : toView(id, document);
        if (document !== undefined && present === undefined) {
          throw new BrokerError("internal", `The document of binding ${id} cannot be read by this broker. Its log names it.`);
        }
        if (present !== undefined && present.kind !== body.kind) {
          throw new BrokerError(
            "binding_kind_conflict",
            `Binding ${id} is registered as ${present.kind}; its kind cannot become ${body.kind}. Use another id.`,
          );
        }
        const limits = limitsOf(body.limits);
        if (present?.name === body.name && JSON.stringify(present.limits) === JSON.stringify(limits)) {
          return { created: false, binding: present };
        }
        const created_at = present?.created_at ?? new Date(clock.now()).toISOString();
        const next: BindingDocument = { name: body.name, kind: body.kind, ...(limits === undefined ? {} : { limits }), created_at };
        const outcome = await withStore(() => store.put(path, encodeDocument(next), document?.revision ?? 0));
        if (outcome.kind === "conflict") continue;
        log.info("binding_saved", { application, binding: id, kind: body.kind });
        return { created: present === undefined, binding: { id, ...next } };
      }
    },
    async find(application, id) {
      if (!ID_PATTERN.test(id)) return undefined;
      const path = paths.binding(application, id);
      const document = store.peek(path) ?? (await withStore(() => store.read(path)));
      return document === undefined ? undefined : toView(id, document);
    },
    list(application, page) {
      const prefix = paths.bindings(application);
      const views = store.peekAll(prefix).flatMap((document) => toView(document.path.slice(prefix.length), document) ?? []);
      const place = (view: BindingView): string => `${view.created_at} ${view.id}`;
      return cutPage(
        { listing: `bindings ${application}`, items: newestFirst(views, place), place, before: (left, right) => left > right },
        page,
      );
    },
  };
}

/** The limits in one form, whatever was left out and in which order; undefined: there are none. */
function limitsOf({ concurrency, queue }: Limits = {}): Limits | undefined {
  return concurrency === undefined && queue === undefined
    ? undefined
    : { ...(concurrency === undefined ? {} : { concurrency }), ...(queue === undefined ? {} : { queue }) };
}

function checkBinding(id: string, body: { readonly name: string; readonly kind: BindingKind; readonly limits?: Limits | undefined }): void {
  if (!ID_PATTERN.test(id))
    throw new BrokerError("id_invalid", `Binding id ${JSON.stringify(id.slice(0, 80))} is not [a-z][a-z0-9_-]{0,63}.`);
  const name: unknown = body.name;
  const details: FaultDetail[] = [];
  if (typeof name !== "string" || name.length === 0 || name.length > BINDING_NAME_CHARACTERS_MAX) {
    details.push({ path: "/name", expected: `a string of 1 to ${BINDING_NAME_CHARACTERS_MAX} characters`, actual: renderActual(name) });
  }
  if (!(BINDING_KINDS as readonly unknown[]).includes(body.kind)) {
    details.push({ path: "/kind", expected: `one of ${BINDING_KINDS.join(", ")}`, actual: renderActual(body.kind) });
  }
  for (const [field, least] of [
    ["concurrency", 1],
    ["queue", 0],
  ] as const) {
    const value: unknown = body.limits?.[field];
    if (value !== undefined && !(Number.isInteger(value) && Number(value) >= least && Number(value) <= LIMIT_MAX)) {
      details.push({ path: `/limits/${field}`, expected: `an integer from ${least} to ${LIMIT_MAX}`, actual: renderActual(value) });
    }
  }
  const [first] = details;
  if (first !== undefined)
    throw new BrokerError("body_invalid", `${first.path} must be ${first.expected}, but is ${first.actual}.`, { details });
}
