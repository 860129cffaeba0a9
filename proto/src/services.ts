/** Everything that needs grpc-js: services, clients, the gRPC channel and reflection. The root entry stays free of it. */

import { CallsDefinition } from "./gen/toolrunner/v1/calls.js";
import { CatalogDefinition, DiagnosticsDefinition } from "./gen/toolrunner/v1/catalog.js";
import { type GrpcHandlers, grpcService } from "./grpc/service-adapter.js";

export { RunnerGatewayDefinition } from "./gen/toolrunner/v1/runner_gateway.js";
export { type GrpcTarget, parseGrpcUrl } from "./grpc/grpc-target.js";
export { type ReflectionPackage, reflectionPackage } from "./grpc/reflection-package.js";
export {
  createGrpcClient,
  type GenericMethod,
  type GenericService,
  type GrpcClient,
  type GrpcClientMethod,
  type GrpcHandler,
  type GrpcHandlers,
  grpcService,
  type MessageType,
  type UnaryMethod,
} from "./grpc/service-adapter.js";
export {
  CLOSE_CODE_TRAILER,
  CLOSE_REASON_TRAILER,
  createGrpcStreamChannel,
  createRunnerGatewayClient,
  endServerStream,
  type RunnerGatewayClient,
  runnerGatewayService,
} from "./grpc/stream-channel.js";
export * from "./messages.js";
export { CallsDefinition, CatalogDefinition, DiagnosticsDefinition };

/** `toolrunner.v1.Calls` for grpc-js. */
export const callsService = grpcService(CallsDefinition);
/** `toolrunner.v1.Catalog` for grpc-js. */
export const catalogService = grpcService(CatalogDefinition);
/** `toolrunner.v1.Diagnostics` for grpc-js. */
export const diagnosticsService = grpcService(DiagnosticsDefinition);

/** One handler for each method of `toolrunner.v1.Calls`. */
export type CallsHandlers = GrpcHandlers<typeof CallsDefinition>;
/** One handler for each method of `toolrunner.v1.Catalog`. */
export type CatalogHandlers = GrpcHandlers<typeof CatalogDefinition>;
/** One handler for each method of `toolrunner.v1.Diagnostics`. */
export type DiagnosticsHandlers = GrpcHandlers<typeof DiagnosticsDefinition>;
