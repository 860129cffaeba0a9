export { BrokerError } from "./domain/broker-error.js";
