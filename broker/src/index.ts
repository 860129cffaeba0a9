export { BOOTSTRAP_KEY_CHARACTERS_MIN, BootstrapKeyError, checkBootstrapKey } from "./access/bootstrap-key.js";
export type { Address, BrokerAddresses, BrokerOptions, StaticKey, StoreOptions } from "./app/broker-options.js";
export { type Broker, createBroker } from "./app/create-broker.js";
export { createPinoLog, LOG_LEVELS, type LogLevel } from "./app/logs.js";
export { StartError, type StartErrorCode } from "./app/start-error.js";
export { SCOPES, type Scope } from "./domain/ports/access.js";
export type { Log, LogFields } from "./domain/ports/log.js";
export type { Figures } from "./wire/figures.js";
