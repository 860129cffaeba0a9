export { type CliOptions, type CliOutcome, type CliProcess, runCli, startCli } from "./cli-process.js";
export { eventually } from "./eventually.js";
export { freePort, type NatsServer, type NatsServerLine, type NatsServerOptions, startNatsServer } from "./nats-server.js";
export { type NatsCluster, type NatsClusterOptions, startNatsCluster } from "./nats-server-cluster.js";
export { startTcpProxy, type TcpProxy } from "./tcp-proxy.js";
