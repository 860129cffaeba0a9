/** Names that the product's processes share. The keys open brokers on loopback that live as long as a measurement. */

export const AGENT_KEY = "bench-agent-key-0123456789abcdef";
export const RUNNER_KEY = "bench-runner-key-0123456789abcdef";
export const BINDING = "bench";
export const TOOLSET = "bench";
export const TOOL = "echo";
