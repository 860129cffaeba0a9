/** What parent and child say to each other. */

/** All operations take one argument, or none. */
export type RoleOperations<R> = { readonly [K in keyof R]: (argument: never) => unknown };

export interface RoleRequest {
  readonly id: number;
  readonly operation: string;
  readonly argument: unknown;
}

/** Without `error`, `value` is the answer. */
export interface RoleReply {
  readonly id: number;
  readonly value?: unknown;
  readonly error?: string;
}
