/** Load hooks for Node without `module.registerHooks`; Node runs this module in its loader thread. */
import { isNotFound, isOwnPackage, loadTypeScript, typeScriptSibling } from "./strip-types.js";

interface ResolveContext {
  readonly parentURL?: string | undefined;
}
type Resolved = { readonly url: string; readonly format?: string | null | undefined; readonly shortCircuit?: boolean };

/** Node's `resolve` hook. */
export async function resolve(
  specifier: string,
  context: ResolveContext,
  next: (specifier: string, context: ResolveContext) => Promise<Resolved>,
): Promise<Resolved> {
  try {
    return await next(specifier, context);
  } catch (cause) {
    if (!isNotFound(cause)) throw cause;
    const sibling = typeScriptSibling(specifier, context.parentURL);
    if (sibling !== undefined) return { url: sibling, shortCircuit: true };
    if (!isOwnPackage(specifier) || context.parentURL === import.meta.url) throw cause;
    return next(specifier, { ...context, parentURL: import.meta.url });
  }
}

/** Node's `load` hook. */
export async function load(url: string, context: unknown, next: (url: string, context: unknown) => Promise<unknown>): Promise<unknown> {
  const loaded = loadTypeScript(url);
  return loaded === undefined ? next(url, context) : { ...loaded, shortCircuit: true };
}
