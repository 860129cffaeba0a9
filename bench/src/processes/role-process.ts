/**
 * The parent's end of a process of a measurement.
 *
 * Invariants: a request is answered or rejected, also when the process ends; `stop` leaves no process behind.
 */
import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { RoleOperations, RoleReply } from "./role-messages.js";
import type { Side } from "./roles.js";

/** Time that a process has to end by itself. */
const STOP_MS = 10_000;

export interface RoleProcess<R extends RoleOperations<R>> {
  ask<K extends keyof R & string>(operation: K, argument?: Parameters<R[K]>[0]): Promise<Awaited<ReturnType<R[K]>>>;
  /** Ends the process; what it was asked for is rejected. Idempotent. */
  end(): Promise<void>;
  /** Kills it: it has no time to say goodbye to anybody. */
  kill(): Promise<void>;
}

/** Starts the program of a role: `product/broker`, `floor/agent` and so on. */
export function startRole<R extends RoleOperations<R>>(side: Side, role: "broker" | "runner" | "agent"): RoleProcess<R> {
  return startProgram(side, role);
}

/** Starts a program that serves a role: `../folder/role.js`. */
export function startProgram<R extends RoleOperations<R>>(folder: string, role: string): RoleProcess<R> {
  const program = fileURLToPath(new URL(`../${folder}/${role}.js`, import.meta.url));
  // The options of the parent, such as a debugger's, are not the child's; typed arrays come over as they are.
  const child = fork(program, { execArgv: [], serialization: "advanced", stdio: ["ignore", "inherit", "inherit", "ipc"] });
  return join(child, `${folder} ${role}`);
}

function join<R extends RoleOperations<R>>(child: ChildProcess, name: string): RoleProcess<R> {
  const pending = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>();
  let lastId = 0;
  let over: string | undefined;
  const exited = new Promise<void>((resolve) => {
    const finish = (why: string): void => {
      over = `the ${name} process ${why}`;
      for (const { reject } of pending.values()) reject(new Error(over));
      pending.clear();
      resolve();
    };
    child.once("exit", (code, signal) => finish(`ended (${signal ?? code})`));
    child.once("error", (error) => finish(`could not be started: ${error.message}`));
  });
  child.on("message", ({ id, value, error }: RoleReply) => {
    const waiting = pending.get(id);
    pending.delete(id);
    if (error === undefined) waiting?.resolve(value);
    else waiting?.reject(new Error(`${name}: ${error}`));
  });

  return {
    ask<K extends keyof R & string>(operation: K, argument?: Parameters<R[K]>[0]) {
      lastId += 1;
      const id = lastId;
      return new Promise<Awaited<ReturnType<R[K]>>>((resolve, reject) => {
        if (over !== undefined) {
          reject(new Error(over));
          return;
        }
        pending.set(id, { resolve: resolve as (value: unknown) => void, reject });
        child.send({ id, operation, argument });
      });
    },
    async end() {
      if (over !== undefined) return;
      if (child.connected) child.disconnect();
      const late = setTimeout(() => child.kill("SIGKILL"), STOP_MS);
      await exited;
      clearTimeout(late);
    },
    async kill() {
      if (over !== undefined) return;
      child.kill("SIGKILL");
      await exited;
    },
  };
}
