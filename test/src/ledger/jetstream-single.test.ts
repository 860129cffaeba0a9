import { describeLedger } from "@toolrunner/broker/testing";
import { type NatsServer, type NatsServerLine, startNatsServer } from "../kit/nats-server.js";
import { corruptBlobOn, openOn } from "./jetstream-harness.js";

/** The whole suite on one server of each line, which is killed and started again while writers are under way. */
for (const [version, name] of [
  ["2.9", "2.9.10"],
  ["2.10", "2.10.27"],
] as const satisfies readonly (readonly [NatsServerLine, string])[]) {
  describeLedger(
    `jetstream on one nats-server ${name}`,
    async () => {
      const server: NatsServer = await startNatsServer({ version });
      return {
        shared: true,
        open: async () => (await openOn([server.url])).ledger,
        crash: async () => {
          await server.kill9();
          await server.restart();
        },
        corruptBlob: (blob) => corruptBlobOn([server.url], blob),
        dispose: () => server.dispose(),
      };
    },
    { rounds: 30 },
  );
}
