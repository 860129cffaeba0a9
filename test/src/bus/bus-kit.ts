import { type Bus, connectNats, createNatsBus, type Log, type NatsBusOptions } from "@toolrunner/broker/internal";

export const quiet: Log = { debug() {}, info() {}, warn() {}, error() {} };

export interface OpenBus {
  readonly bus: Bus;
  close(): Promise<void>;
}

/** A bus with a connection of its own, both ended by `close`. */
export async function openBus(url: string, options: Partial<NatsBusOptions> = {}): Promise<OpenBus> {
  const connection = await connectNats({ url, name: "bus-test", log: quiet });
  try {
    const bus = createNatsBus({ connection, log: quiet, ...options });
    return {
      bus,
      async close() {
        await bus.close();
        await connection.close();
      },
    };
  } catch (error) {
    await connection.close();
    throw error;
  }
}

/** One request to JetStream's own interface; fails when it answers with an error. */
export async function askJetStream(
  connection: Awaited<ReturnType<typeof connectNats>>,
  what: string,
  body: Readonly<Record<string, unknown>>,
): Promise<Record<string, unknown>> {
  const answer = (await connection.request(`$JS.API.${what}`, JSON.stringify(body))).json<Record<string, unknown>>();
  if (answer.error !== undefined) throw new Error(`${what}: ${JSON.stringify(answer.error)}`);
  return answer;
}

/** Names that no other test of the process uses, so that tests can share a server. */
export function createNames(lead: string): () => string {
  let last = 0;
  return () => {
    last += 1;
    return `${lead}${last}`;
  };
}
