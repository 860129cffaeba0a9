/** Installs the load hooks once for a process: in this thread where Node can do that, in its loader thread otherwise. */
import module from "node:module";
import { isNotFound, isOwnPackage, loadTypeScript, typeScriptSibling } from "./strip-types.js";

/** The part of `module.registerHooks` (Node 22.15 and newer) that is used; older type definitions do not have it. */
interface SynchronousHooks {
  registerHooks?(hooks: {
    resolve(specifier: string, context: { parentURL?: string }, next: (specifier: string, context?: object) => object): object;
    load(url: string, context: object, next: (url: string, context?: object) => object): object;
  }): unknown;
}

let registered = false;

/** From here on `import()` takes TypeScript. Idempotent. */
export function registerTypeScript(): void {
  if (registered) return;
  registered = true;
  const { registerHooks } = module as SynchronousHooks;
  if (registerHooks === undefined) {
    module.register(new URL("./loader-thread.js", import.meta.url));
    return;
  }
  registerHooks({
    resolve(specifier, context, next) {
      try {
        return next(specifier, context);
      } catch (cause) {
        if (!isNotFound(cause)) throw cause;
        const sibling = typeScriptSibling(specifier, context.parentURL);
        if (sibling !== undefined) return { url: sibling, shortCircuit: true };
        if (!isOwnPackage(specifier) || context.parentURL === import.meta.url) throw cause;
        return next(specifier, { ...context, parentURL: import.meta.url });
      }
    },
    load(url, context, next) {
      const loaded = loadTypeScript(url);
      return loaded === undefined ? next(url, context) : { ...loaded, shortCircuit: true };
    },
  });
}
