/** The product's broker, as `toolrunner broker` runs it. */
import { createBroker, type StoreOptions } from "@toolrunner/broker";
import { brokerUsage } from "../processes/broker-usage.js";
import type { BrokerRole, LedgerPlace } from "../processes/roles.js";
import { serveRole } from "../processes/serve-role.js";
import { AGENT_KEY, BINDING, RUNNER_KEY } from "./names.js";

const LOOPBACK = "127.0.0.1";

const storeOf = (place: LedgerPlace): StoreOptions =>
  place.kind === "sqlite" ? { kind: "sqlite", dataDir: place.dataDir } : { kind: "nats", url: place.url };

let stop: () => Promise<void> = async () => undefined;

serveRole<BrokerRole>({
  ...brokerUsage(),
  async start({ ledger, index, ports }) {
    const broker = await createBroker({
      mode: "broker",
      store: storeOf(ledger),
      http: { host: LOOPBACK, port: ports?.http ?? 0 },
      grpc: { host: LOOPBACK, port: ports?.grpc ?? 0 },
      index,
      staticKeys: [
        {
          kind: "agent",
          id: "key_bench_agent",
          key: AGENT_KEY,
          application: "bench",
          scopes: ["calls:write", "calls:read", "catalog:write"],
        },
        { kind: "runner", id: "key_bench_runner", key: RUNNER_KEY, application: "bench", binding: BINDING },
      ],
    });
    stop = () => broker.stop({ drainMs: 0 });
    const { http, ws, grpc } = broker.addresses;
    if (grpc === null) throw new Error("the broker was started without gRPC");
    return { http, ws, grpc };
  },
  stop: () => stop(),
});
