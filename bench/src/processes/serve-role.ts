/** The child's end: carries out what the parent asks, one answer for each request, and ends with its parent. */
import type { RoleOperations, RoleReply, RoleRequest } from "./role-messages.js";

/** Serves `role` to the process that forked this one. */
export function serveRole<R extends RoleOperations<R>>(role: R): void {
  const operations = new Map(Object.entries<(argument: never) => unknown>(role));
  process.on("message", ({ id, operation, argument }: RoleRequest) => {
    void answer(operations.get(operation), operation, argument).then((reply) => process.send?.({ id, ...reply }));
  });
  process.on("disconnect", () => process.exit(0));
}

async function answer(
  work: ((argument: never) => unknown) | undefined,
  operation: string,
  argument: unknown,
): Promise<Omit<RoleReply, "id">> {
  try {
    if (work === undefined) throw new Error(`this process knows no ${operation}`);
    return { value: await work(argument as never) };
  } catch (error) {
    return { error: error instanceof Error ? (error.stack ?? error.message) : String(error) };
  }
}
