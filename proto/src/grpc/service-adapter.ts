/**
 * Turns the generic service definitions of the generated code, which know no transport, into typed grpc-js services and clients.
 */
import type { BinaryReader, BinaryWriter } from "@bufbuild/protobuf/wire";
import {
  type CallOptions,
  type ChannelCredentials,
  type Client,
  type ClientDuplexStream,
  type ClientOptions,
  type ClientReadableStream,
  type ClientUnaryCall,
  type ClientWritableStream,
  type handleBidiStreamingCall,
  type handleClientStreamingCall,
  type handleServerStreamingCall,
  type handleUnaryCall,
  type Metadata,
  type MethodDefinition,
  makeClientConstructor,
  type requestCallback,
  type ServiceDefinition,
} from "@grpc/grpc-js";

import { messageBytes } from "../message-bytes.js";

/** How a generated message type is written and read; its own type is inferred from `decode`. */
export interface MessageType {
  encode(message: never, writer?: BinaryWriter): BinaryWriter;
  decode(input: BinaryReader | Uint8Array, length?: number): unknown;
}

/** One method of a generic service definition. */
export interface GenericMethod {
  readonly name: string;
  readonly requestType: MessageType;
  readonly requestStream: boolean;
  readonly responseType: MessageType;
  readonly responseStream: boolean;
}

/** A service as ts-proto writes it with `outputServices=generic-definitions`. */
export interface GenericService {
  readonly fullName: string;
  readonly methods: Readonly<Record<string, GenericMethod>>;
}

type Request<M extends GenericMethod> = ReturnType<M["requestType"]["decode"]>;
type Response<M extends GenericMethod> = ReturnType<M["responseType"]["decode"]>;

/** The handler that a server gives for method `M`. */
export type GrpcHandler<M extends GenericMethod> = M["requestStream"] extends true
  ? M["responseStream"] extends true
    ? handleBidiStreamingCall<Request<M>, Response<M>>
    : handleClientStreamingCall<Request<M>, Response<M>>
  : M["responseStream"] extends true
    ? handleServerStreamingCall<Request<M>, Response<M>>
    : handleUnaryCall<Request<M>, Response<M>>;

/** One handler for each method of `S`; fits `server.addService(grpcService(S), handlers)`. */
export type GrpcHandlers<S extends GenericService> = { [K in keyof S["methods"]]: GrpcHandler<S["methods"][K]> };

/** A unary method of a client. */
export interface UnaryMethod<Req, Res> {
  (request: Req, callback: requestCallback<Res>): ClientUnaryCall;
  (request: Req, metadata: Metadata, callback: requestCallback<Res>): ClientUnaryCall;
  (request: Req, metadata: Metadata, options: Partial<CallOptions>, callback: requestCallback<Res>): ClientUnaryCall;
}

/** The method that a client has for `M`. */
export type GrpcClientMethod<M extends GenericMethod> = M["requestStream"] extends true
  ? M["responseStream"] extends true
    ? (metadata?: Metadata, options?: Partial<CallOptions>) => ClientDuplexStream<Request<M>, Response<M>>
    : (metadata: Metadata, options: Partial<CallOptions>, callback: requestCallback<Response<M>>) => ClientWritableStream<Request<M>>
  : M["responseStream"] extends true
    ? (request: Request<M>, metadata?: Metadata, options?: Partial<CallOptions>) => ClientReadableStream<Response<M>>
    : UnaryMethod<Request<M>, Response<M>>;

/** A typed client of `S`: grpc-js's `Client` with one method for each of the service. */
export type GrpcClient<S extends GenericService> = Client & { [K in keyof S["methods"]]: GrpcClientMethod<S["methods"][K]> };

/** The grpc-js service definition of a generic one, for `server.addService`. */
export function grpcService<S extends GenericService>(service: S): ServiceDefinition<GrpcHandlers<S>> {
  const methods = Object.entries(service.methods).map(([key, method]) => [key, grpcMethod(service.fullName, method)] as const);
  return Object.fromEntries(methods) as ServiceDefinition<GrpcHandlers<S>>;
}

function grpcMethod(serviceName: string, method: GenericMethod): MethodDefinition<unknown, unknown> {
  return {
    path: `/${serviceName}/${method.name}`,
    requestStream: method.requestStream,
    responseStream: method.responseStream,
    requestSerialize: (message) => serialize(method.requestType, message),
    requestDeserialize: (bytes) => method.requestType.decode(bytes),
    responseSerialize: (message) => serialize(method.responseType, message),
    responseDeserialize: (bytes) => method.responseType.decode(bytes),
  };
}

function serialize(type: MessageType, message: unknown): Buffer {
  return bufferOf(messageBytes(type, message as never));
}

/** The same memory as a Buffer. */
export function bufferOf(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Makes a typed client of `service`. `address` is `host:port`; nothing is dialled before the first call. */
export function createGrpcClient<S extends GenericService>(
  service: S,
  address: string,
  credentials: ChannelCredentials,
  options: Partial<ClientOptions> = {},
): GrpcClient<S> {
  const Constructor = makeClientConstructor(grpcService(service), service.fullName);
  return new Constructor(address, credentials, options) as unknown as GrpcClient<S>;
}
