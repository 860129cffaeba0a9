/** A network namespace for a run: ports of its own, and packets that can be dropped below TCP without touching anybody else's. */
import { spawn, spawnSync } from "node:child_process";

/** Set in a process that has a namespace of its own. */
const OWN = "TOOLRUNNER_CHAOS_OWN_NETWORK";
const BEGIN = "ip link set lo up && iptables -A INPUT -i lo -p tcp --dport 1 -j DROP && iptables -F INPUT";

export type NetworkSpace = { readonly kind: "own" } | { readonly kind: "possible" } | { readonly kind: "none"; readonly why: string };

/** Whether this process has a namespace of its own, or could have one. */
export function networkSpace(): NetworkSpace {
  if (process.env[OWN] === "1") return { kind: "own" };
  if (process.platform !== "linux") return { kind: "none", why: "network namespaces are Linux's" };
  const probe = spawnSync("unshare", ["--net", "sh", "-c", BEGIN], { encoding: "utf8" });
  if (probe.status === 0) return { kind: "possible" };
  const why = probe.error?.message ?? probe.stderr.trim().split("\n").at(-1) ?? "";
  return { kind: "none", why: why === "" ? `unshare ended with code ${probe.status}` : why };
}

/** Runs this very command again in a namespace of its own. Resolves with its exit code. */
export function runInOwnSpace(args: readonly string[], env: Readonly<Record<string, string>>): Promise<number> {
  const command = ["--net", "sh", "-c", `${BEGIN} && exec "$@"`, "sh", process.execPath, ...args];
  const child = spawn("unshare", command, { stdio: "inherit", env: { ...process.env, ...env, [OWN]: "1" } });
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => void child.kill(signal));
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code) => resolve(code ?? 1));
  });
}
