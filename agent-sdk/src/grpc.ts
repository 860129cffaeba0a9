export { connectGrpc, type GrpcTransportOptions } from "./grpc/grpc-transport.js";
