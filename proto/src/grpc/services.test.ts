import { create, createFileRegistry, fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema, FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { credentials, Metadata, Server, ServerCredentials } from "@grpc/grpc-js";
import { ReflectionService } from "@grpc/reflection";
import { afterEach, describe, expect, it } from "vitest";
import {
  Call,
  CallsDefinition,
  type CallsHandlers,
  CatalogDefinition,
  CreateCallRequest,
  CreateCallsResponse,
  callsService,
  catalogService,
  createGrpcClient,
  DiagnosticsDefinition,
  diagnosticsService,
  parseGrpcUrl,
  reflectionPackage,
  runnerGatewayService,
} from "../services.js";

const stops: (() => void)[] = [];
afterEach(() => {
  for (const stop of stops.splice(0)) stop();
});

async function listen(server: Server): Promise<string> {
  stops.push(() => server.forceShutdown());
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, bound) => (error ? reject(error) : resolve(bound)));
  });
  return `127.0.0.1:${port}`;
}

const unused = (): never => {
  throw new Error("not part of this test");
};

describe("gRPC services", () => {
  it("carries unary calls, server streams and bidirectional streams through typed services and clients", async () => {
    const handlers: CallsHandlers = {
      createCall: ({ request, metadata }, callback) => {
        callback(null, Call.create({ id: `call_${request.tool}`, state: String(metadata.get("authorization")[0]) }));
      },
      watchCall: (stream) => {
        for (const seq of [1, 2, 3]) stream.write({ callId: stream.request.id, seq, at: "", event: "progress", dataJson: "{}" });
        stream.end();
      },
      createCalls: (stream) => {
        stream.on("data", ({ number, call }) => {
          stream.write(CreateCallsResponse.create({ number, answer: { $case: "call", value: { id: call?.tool ?? "" } } }));
        });
        stream.on("end", () => stream.end());
      },
      getCall: unused,
      listCalls: unused,
      listCallEvents: unused,
      readResult: unused,
      cancelCall: unused,
      confirmCall: unused,
      reconcileCall: unused,
      createBatch: unused,
      updateCall: unused,
      settleCall: unused,
    };
    const server = new Server();
    server.addService(callsService, handlers);
    const client = createGrpcClient(CallsDefinition, await listen(server), credentials.createInsecure());
    stops.push(() => client.close());

    const metadata = new Metadata();
    metadata.set("authorization", "Bearer k");
    const created = await new Promise<Call | undefined>((resolve, reject) => {
      client.createCall(CreateCallRequest.create({ tool: "refund" }), metadata, (error, call) => (error ? reject(error) : resolve(call)));
    });
    expect(created).toMatchObject({ id: "call_refund", state: "Bearer k", deadlineAt: undefined });

    const seqs: number[] = [];
    for await (const event of client.watchCall({ id: "call_1" })) seqs.push((event as { seq: number }).seq);
    expect(seqs).toEqual([1, 2, 3]);

    const stream = client.createCalls();
    stream.write({ number: 7, call: CreateCallRequest.create({ tool: "t" }) });
    stream.end();
    const answers: CreateCallsResponse[] = [];
    for await (const answer of stream) answers.push(answer as CreateCallsResponse);
    expect(answers).toMatchObject([{ number: 7, answer: { $case: "call", value: { id: "t" } } }]);
  });

  it("names every method of every service by its path", () => {
    const paths = [callsService, catalogService, diagnosticsService, runnerGatewayService].flatMap((service) =>
      Object.values(service).map((method: { readonly path: string }) => method.path),
    );
    const registry = createFileRegistry(
      create(FileDescriptorSetSchema, {
        file: (reflectionPackage()["toolrunner.v1"]?.fileDescriptorProtos ?? []).map((bytes) =>
          fromBinary(FileDescriptorProtoSchema, bytes),
        ),
      }),
    );
    const declared = [...registry].flatMap((type) =>
      type.kind === "service" ? type.methods.map((method) => `/${type.typeName}/${method.name}`) : [],
    );
    expect(paths.sort()).toEqual(declared.sort());
    expect(declared.length).toBe(22);
    expect(CatalogDefinition.fullName).toBe("toolrunner.v1.Catalog");
    expect(DiagnosticsDefinition.fullName).toBe("toolrunner.v1.Diagnostics");
  });

  it("gives reflection what it needs", async () => {
    const server = new Server();
    new ReflectionService(reflectionPackage()).addToServer(server);
    const client = createGrpcClient(CallsDefinition, await listen(server), credentials.createInsecure());
    stops.push(() => client.close());
    const bytes = (value: Buffer): Buffer => value;
    const stream = client.makeBidiStreamRequest(
      "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
      bytes,
      bytes,
      new Metadata(),
      {},
    );
    const symbol = "toolrunner.v1.RunnerGateway";
    // list_services = 7, file_containing_symbol = 4
    stream.write(Buffer.from([0x3a, 0x00]));
    stream.write(Buffer.concat([Buffer.from([0x22, symbol.length]), Buffer.from(symbol)]));
    stream.end();
    const answers: string[] = [];
    for await (const answer of stream) answers.push((answer as Buffer).toString("latin1"));
    for (const name of ["Calls", "Catalog", "Diagnostics", "RunnerGateway"]) expect(answers[0]).toContain(`toolrunner.v1.${name}`);
    expect(answers[1]).toContain("toolrunner/v1/runner_gateway.proto");
    expect(answers[1]).toContain("toolrunner/v1/session.proto");
  });
});

describe("gRPC addresses", () => {
  it("reads plain and TLS addresses", () => {
    expect(parseGrpcUrl("grpc://127.0.0.1:7071").address).toBe("127.0.0.1:7071");
    expect(parseGrpcUrl("grpc://[::1]:7071/").address).toBe("[::1]:7071");
    expect(parseGrpcUrl("grpc://127.0.0.1:7071").credentials._isSecure()).toBe(false);
    expect(parseGrpcUrl("grpcs://tools.example:443").credentials._isSecure()).toBe(true);
  });

  it.each([
    "",
    "127.0.0.1:7071",
    "http://127.0.0.1:7071",
    "grpc://127.0.0.1",
    "grpc://:7071",
    "grpc://a:1/path",
    "grpc://a:1?token=k",
    "grpc://k@a:1",
  ])("refuses %j and does not repeat it, since it may hold a key", (url) => {
    expect(() => parseGrpcUrl(url)).toThrow(TypeError);
    if (url !== "") expect(() => parseGrpcUrl(url)).not.toThrow(url);
  });
});
