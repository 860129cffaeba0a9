/** A broker that could not start: the message says what was wrong and what to do. */
export type StartErrorCode =
  | "port_in_use"
  | "address_unusable"
  | "data_in_use"
  | "data_unusable"
  | "nats_unreachable"
  | "nats_unsupported"
  | "key_invalid"
  | "option_invalid";

export class StartError extends Error {
  override readonly name = "StartError";
  constructor(
    readonly code: StartErrorCode,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}
