import address from "./worker.ts?worker&url";

interface TrustedTypes {
  createPolicy(name: string, rules: { createScriptURL(address: string): string }): { createScriptURL(address: string): string };
}

/** Starts the worker; where the page's policy wants trusted types, its address is given as one. */
export function startWorker(): Worker {
  const { trustedTypes } = globalThis as { readonly trustedTypes?: TrustedTypes };
  const policy = trustedTypes?.createPolicy("toolrunner-worker", { createScriptURL: () => address });
  return new Worker(policy?.createScriptURL(address) ?? address, { type: "module" });
}
