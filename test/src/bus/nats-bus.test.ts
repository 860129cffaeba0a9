import { describeBus } from "@toolrunner/broker/testing";
import { afterAll, beforeAll, describe } from "vitest";
import { type NatsServer, startNatsServer } from "../kit/index.js";
import { createNames, type OpenBus, openBus } from "./bus-kit.js";

describe.each(["2.9", "2.10"] as const)("nats-server %s", (version) => {
  let server: NatsServer;
  const nextPrefix = createNames("suite");
  beforeAll(async () => {
    server = await startNatsServer({ version });
  });
  afterAll(() => server.dispose());

  describeBus("NATS", async () => {
    const prefix = nextPrefix();
    const open: OpenBus[] = [];
    return {
      async connect() {
        const one = await openBus(server.url, { prefix });
        open.push(one);
        return one.bus;
      },
      async close() {
        await Promise.all(open.map((one) => one.close()));
      },
    };
  });
});
