/** A whole broker in this process, with its gateways on free ports: for tests that need its figures short or its memory in sight. */
import { type Broker, type BrokerOptions, createBroker, SCOPES } from "@toolrunner/broker";

export const AGENT_KEY = "test-agent-key-0123456789abcdef";

export interface Answer {
  readonly status: number;
  readonly body: Record<string, unknown>;
}

export interface InProcessBroker {
  readonly broker: Broker;
  /** Events that it logged, oldest first. */
  readonly events: readonly { readonly event: string; readonly fields: Readonly<Record<string, unknown>> }[];
  http(method: string, path: string, body?: unknown): Promise<Answer>;
  /** Makes a runner key of the binding. */
  runnerKey(binding: string): Promise<{ readonly id: string; readonly key: string }>;
  stop(drainMs?: number): Promise<void>;
}

/** Starts it. Bindings `names` are registered, as backends, each with a toolset of the same name whose tools are `echo` (repeatable) and `charge` (not). */
export async function startInProcessBroker(
  options: Partial<BrokerOptions> & { readonly bindings?: readonly string[] } = {},
): Promise<InProcessBroker> {
  const events: { event: string; fields: Readonly<Record<string, unknown>> }[] = [];
  const line = (event: string, fields: object = {}): void => void events.push({ event, fields: { ...fields } });
  const broker = await createBroker({
    mode: "broker",
    store: { kind: "memory" },
    http: { host: "127.0.0.1", port: 0 },
    grpc: { host: "127.0.0.1", port: 0 },
    staticKeys: [{ kind: "agent", id: "key_test_agent", key: AGENT_KEY, application: "default", scopes: SCOPES }],
    log: { debug: line, info: line, warn: line, error: line },
    ...options,
  });
  async function http(method: string, path: string, body?: unknown): Promise<Answer> {
    const response = await fetch(`${broker.addresses.http}${path}`, {
      method,
      headers: { authorization: `Bearer ${AGENT_KEY}`, ...(body === undefined ? {} : { "content-type": "application/json" }) },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    return { status: response.status, body: (await response.json()) as Record<string, unknown> };
  }
  for (const binding of options.bindings ?? []) {
    await http("PUT", `/v1/bindings/${binding}`, { name: binding, kind: "backend" });
    const tools = ["echo", "charge"].map((name) => ({
      name,
      description: "Answers.",
      input_schema: { type: "object" },
      binding,
      idempotent: name === "echo",
      cancellable: true,
    }));
    await http("PUT", `/v1/toolsets/${binding}`, { base_version: 0, tools });
  }
  return {
    broker,
    events,
    http,
    async runnerKey(binding) {
      const made = await http("POST", `/v1/bindings/${binding}/keys`, {});
      if (made.status !== 201) throw new Error(`no runner key: ${JSON.stringify(made)}`);
      return { id: String(made.body.id), key: String(made.body.key) };
    },
    stop: (drainMs = 0) => broker.stop({ drainMs }),
  };
}
