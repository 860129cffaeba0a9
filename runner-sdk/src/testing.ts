/** For tests of tools and of whatever embeds a runner: a broker that the test plays, memory transports, a clock by hand. */
export { createFakeBroker, type FakeBroker, type FakeSession, type RunnerFrameKind, type RunnerFrameOf } from "./testing/fake-broker.js";
export { createManualClock, type ManualClock } from "./testing/manual-clock.js";
export { type BrokerChannel, memoryTransport } from "./testing/memory-transport.js";
