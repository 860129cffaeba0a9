/** The floor's gRPC service: two bidirectional streams of bytes as they are. */
import type { MethodDefinition, ServiceDefinition } from "@grpc/grpc-js";

type BytesMethod = MethodDefinition<Buffer, Buffer>;

const same = (bytes: Buffer): Buffer => bytes;

const method = (name: string): BytesMethod => ({
  path: `/toolrunner.bench.Floor/${name}`,
  requestStream: true,
  responseStream: true,
  requestSerialize: same,
  requestDeserialize: same,
  responseSerialize: same,
  responseDeserialize: same,
});

/** `call` is the agent's stream, `run` the runner's: the broker writes requests into it and reads answers. */
export const floorService: ServiceDefinition<{ call: BytesMethod; run: BytesMethod }> = { call: method("Call"), run: method("Run") };
