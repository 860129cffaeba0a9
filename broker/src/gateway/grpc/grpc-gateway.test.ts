import { once } from "node:events";
import { credentials, Metadata, makeGenericClientConstructor, type ServiceDefinition, status } from "@grpc/grpc-js";
import type { Call, CallEvent, CreateBatchResponse, CreateCallRequest, CreateCallsResponse } from "@toolrunner/proto";
import { callsService } from "@toolrunner/proto/services";
import { service as healthDefinition } from "grpc-health-check";
import { afterEach, describe, expect, it } from "vitest";
import { BrokerError } from "../../domain/broker-error.js";
import { createFakeAuthenticator, RUNNER_KEY } from "../testing/fake-operations.js";
import { answered, refusedWith, startTestGrpc, stopTestGrpc, type TestGrpc, withKey } from "../testing/grpc-kit.js";
import { IN_FLIGHT_MAX } from "./create-calls.js";

afterEach(stopTestGrpc);

const refund: CreateCallRequest = { toolset: "shop", tool: "refund", argumentsJson: "{}" };

function create(grpc: TestGrpc, request: CreateCallRequest, metadata = withKey()): Promise<Call> {
  return answered((done) => grpc.calls.createCall(request, metadata, done));
}

describe("calls over gRPC", () => {
  it("creates, waits, reads and lists calls as HTTP does", async () => {
    const grpc = await startTestGrpc();
    const waiting = create(grpc, {
      ...refund,
      argumentsJson: '{"a":[1,null]}',
      waitSeconds: 30,
      idempotencyKey: "k",
      subject: "u",
      priority: "background",
    });
    await expect.poll(() => grpc.operations.openWaits).toBe(1);
    expect(grpc.operations.recorded.at(-1)?.arguments[1]).toEqual({
      toolset: "shop",
      tool: "refund",
      arguments: { a: [1, null] },
      wait_seconds: 30,
      idempotency_key: "k",
      subject: "u",
      priority: "background",
    });
    grpc.operations.settle("call_0001", { ok: true });
    const call = await waiting;
    expect(call).toMatchObject({ id: "call_0001", state: "succeeded", resultJson: '{"ok":true}', subject: "u", receipt: { fence: 7 } });
    const read = await answered<Call>((done) => grpc.calls.getCall({ id: call.id, waitSeconds: 1 }, withKey(), done));
    expect(read).toEqual(call);
    const page = await answered<{ data: Call[] }>((done) => grpc.calls.listCalls({ state: "succeeded", limit: 5 }, withKey(), done));
    expect(page.data).toEqual([call]);
  });

  it("tells a null result from none", async () => {
    const grpc = await startTestGrpc();
    const open = await create(grpc, refund);
    expect(open.resultJson).toBeUndefined();
    grpc.operations.settle(open.id, null);
    const settled = await answered<Call>((done) => grpc.calls.getCall({ id: open.id }, withKey(), done));
    expect(settled.resultJson).toBe("null");
  });

  it("streams events until the call has settled, and ends with the broker's drain otherwise", async () => {
    const grpc = await startTestGrpc();
    const { id } = await create(grpc, refund);
    const seen: CallEvent[] = [];
    const stream = grpc.calls.watchCall({ id, afterSeq: 1 }, withKey());
    stream.on("data", (event: CallEvent) => seen.push(event));
    grpc.operations.emit(id, "progress", { text: "half" });
    grpc.operations.settle(id, 1);
    await once(stream, "end");
    expect(seen.map(({ seq, event, dataJson }) => [seq, event, dataJson])).toEqual([
      [2, "progress", '{"text":"half"}'],
      [3, "settled", '{"state":"succeeded"}'],
    ]);
    const open = await create(grpc, refund);
    const cut = grpc.calls.watchCall({ id: open.id }, withKey());
    const error = once(cut, "error");
    cut.on("data", () => undefined);
    await expect.poll(() => grpc.operations.openWaits).toBe(1);
    grpc.gateway.beginDrain();
    expect((await error)[0]).toMatchObject({ code: status.UNAVAILABLE });
    await expect.poll(() => grpc.operations.openWaits).toBe(0);
  });

  it("gives up a wait and a watch when their client cancels", async () => {
    const grpc = await startTestGrpc();
    const { id } = await create(grpc, refund);
    const unary = grpc.calls.getCall({ id, waitSeconds: 60 }, withKey(), () => undefined);
    const stream = grpc.calls.watchCall({ id }, withKey());
    stream.on("data", () => undefined);
    stream.on("error", () => undefined);
    await expect.poll(() => grpc.operations.openWaits).toBe(2);
    unary.cancel();
    stream.cancel();
    await expect.poll(() => grpc.operations.openWaits).toBe(0);
  });

  it("reads results, cancels, confirms and reconciles", async () => {
    const grpc = await startTestGrpc();
    const { id } = await create(grpc, { ...refund, tool: "instant", argumentsJson: '"abcdef"' });
    expect(await answered((done) => grpc.calls.readResult({ id, offset: 1, maxBytes: 3 }, withKey(), done))).toEqual({
      text: "abc",
      nextOffset: 4,
      eof: false,
    });
    const open = await create(grpc, refund);
    expect(await answered((done) => grpc.calls.cancelCall({ id: open.id, mode: "skip" }, withKey(), done))).toMatchObject({
      state: "cancelled",
    });
    const unknown = await create(grpc, refund);
    const request = { id: unknown.id, outcome: "applied", resultJson: '{"n":1}' };
    expect(await answered((done) => grpc.calls.reconcileCall(request, withKey(), done))).toMatchObject({
      state: "succeeded",
      resultJson: '{"n":1}',
    });
    const refused = await refusedWith(answered((done) => grpc.calls.confirmCall({ id, decision: "allow" }, withKey(), done)));
    expect([refused.status, refused.error.code]).toEqual([status.FAILED_PRECONDITION, "not_awaiting_confirmation"]);
    const listed = await answered<{ data: CallEvent[] }>((done) => grpc.calls.listCallEvents({ id, afterSeq: 1 }, withKey(), done));
    expect(listed.data.map(({ event }) => event)).toEqual(["settled"]);
  });
});

describe("the catalog and diagnostics over gRPC", () => {
  it("keeps tools as JSON", async () => {
    const grpc = await startTestGrpc();
    const toolJson = '{"z":1,"a":{"x-kept":[true]}}';
    const saved = await answered((done) => grpc.catalog.putToolset({ id: "docs", baseVersion: 0, tools: [{ toolJson }] }, withKey(), done));
    expect(saved).toMatchObject({ id: "docs", version: 1, tools: [{ toolJson }] });
    expect(await answered((done) => grpc.catalog.getToolset({ id: "docs", version: 1 }, withKey(), done))).toEqual(saved);
    const conflict = await refusedWith(
      answered((done) => grpc.catalog.putToolset({ id: "docs", baseVersion: 5, tools: [] }, withKey(), done)),
    );
    expect([conflict.status, conflict.error.code]).toEqual([status.FAILED_PRECONDITION, "version_conflict"]);
    expect(String(conflict.metadata.get("toolrunner-error-extra-bin")[0])).toBe('{"current_version":1}');
    expect(await answered((done) => grpc.catalog.listToolsetVersions({ id: "docs" }, withKey(), done))).toMatchObject({
      data: [{ version: 1 }],
    });
    expect(await answered((done) => grpc.catalog.listToolsets({ limit: 1 }, withKey(), done))).toMatchObject({
      data: [{ id: "shop" }],
      nextPage: "1",
    });
  });

  it("registers bindings and lists runners", async () => {
    const grpc = await startTestGrpc();
    const limits = { concurrency: 2, queue: 0 };
    const body = { id: "desk", name: "Desk", kind: "desktop", limits };
    const binding = await answered((done) => grpc.catalog.putBinding(body, withKey(), done));
    expect(binding).toMatchObject({ limits });
    expect(await answered((done) => grpc.catalog.getBinding({ id: "desk" }, withKey(), done))).toEqual(binding);
    expect(await answered((done) => grpc.catalog.listBindings({}, withKey(), done))).toMatchObject({ data: [{ id: "shop" }, binding] });
    expect(await answered((done) => grpc.diagnostics.listRunners({}, withKey(), done))).toMatchObject({
      data: [{ runnerId: "run_1", sessionEpoch: 3, handlers: [{ tool: "refund" }] }],
    });
  });
});

describe("refusals over gRPC", () => {
  it("wants an agent key for everything, and its scope", async () => {
    const grpc = await startTestGrpc();
    const attempts: readonly [string, number, string][] = [
      ["", status.UNAUTHENTICATED, "key_missing"],
      ["nonsense", status.UNAUTHENTICATED, "key_invalid"],
      [RUNNER_KEY, status.UNAUTHENTICATED, "key_invalid"],
      ["only:calls:read", status.PERMISSION_DENIED, "scope_missing"],
    ];
    for (const [key, code, name] of attempts) {
      const refused = await refusedWith(create(grpc, refund, withKey(key)));
      expect([refused.status, refused.error.code, refused.error.requestId]).toEqual([code, name, expect.stringMatching(/^req_/)]);
      const stream = grpc.calls.createCalls(withKey(key));
      stream.on("data", () => undefined);
      expect((await once(stream, "error"))[0]).toMatchObject({ code });
      const watch = grpc.calls.watchCall({ id: "call_1" }, withKey(key === "only:calls:read" ? "only:admin" : key));
      watch.on("data", () => undefined);
      expect((await once(watch, "error"))[0]).toMatchObject({ code });
    }
  });

  it("checks forms as HTTP does", async () => {
    const grpc = await startTestGrpc();
    const bad: readonly [CreateCallRequest, string][] = [
      [{ ...refund, toolset: "" }, "/toolset"],
      [{ ...refund, argumentsJson: "" }, "/arguments"],
      [{ ...refund, argumentsJson: "{" }, "/arguments"],
      [{ ...refund, argumentsJson: '{"a":{"__proto__":1}}' }, "/arguments/a/__proto__"],
      [{ ...refund, argumentsJson: "[1e999]" }, "/arguments/0"],
      [{ ...refund, waitSeconds: Number.NaN }, "/wait_seconds"],
      [{ ...refund, waitSeconds: 61 }, "/wait_seconds"],
      [{ ...refund, priority: "soon" }, "/priority"],
      [{ ...refund, maxAttempts: 11 }, "/max_attempts"],
      [{ ...refund, timeoutSeconds: 4 }, "/timeout_seconds"],
      [{ ...refund, idempotencyKey: "x".repeat(257) }, "/idempotency_key"],
    ];
    for (const [request, path] of bad) {
      const { status: code, error } = await refusedWith(create(grpc, request));
      expect([code, error.code, error.details.map((detail) => detail.path)]).toEqual([status.INVALID_ARGUMENT, "body_invalid", [path]]);
    }
    expect(grpc.operations.callIds).toEqual([]);
  });

  it("blames a message that cannot be decoded on its sender", async () => {
    const grpc = await startTestGrpc();
    const raw = Object.fromEntries(
      Object.entries(callsService).map(([name, method]) => [name, { ...method, requestSerialize: (bytes: Buffer) => bytes }]),
    );
    const Client = makeGenericClientConstructor(raw, "Calls");
    const client = new Client(grpc.address, credentials.createInsecure());
    const call = client.createCall;
    if (call === undefined) throw new Error("no such method");
    const { status: code, error } = await refusedWith(
      answered((done) => Reflect.apply(call, client, [Buffer.from([0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]), withKey(), done])),
    );
    expect([code, error.code]).toEqual([status.INVALID_ARGUMENT, "body_invalid"]);
    client.close();
  });

  it("keeps the text of an unexpected error in the log", async () => {
    const grpc = await startTestGrpc();
    grpc.operations.failNext("create", new Error("password=hunter2"));
    const refused = await refusedWith(create(grpc, refund));
    expect([refused.status, refused.error.code]).toEqual([status.INTERNAL, "internal"]);
    expect(JSON.stringify(refused.error)).not.toContain("hunter2");
    expect(JSON.stringify(grpc.log.lines)).toContain("hunter2");
  });

  it("sends a refusal whatever its text and however many its details", async () => {
    const grpc = await startTestGrpc();
    const details = Array.from({ length: 3_000 }, (_, index) => ({ path: `/${index}`, expected: "ü".repeat(50), actual: "x" }));
    grpc.operations.failNext("create", new BrokerError("arguments_invalid", `half \ud800 a pair, ${"long ".repeat(2_000)}`, { details }));
    const refused = await refusedWith(create(grpc, refund));
    expect([refused.status, refused.error.code, refused.error.details.length > 5]).toEqual([
      status.INVALID_ARGUMENT,
      "arguments_invalid",
      true,
    ]);
  });

  it("says when to come back", async () => {
    const grpc = await startTestGrpc();
    grpc.operations.failNext("create", new BrokerError("rate_limited", "Too many.", { retryAfterSeconds: 4 }));
    const limited = await refusedWith(create(grpc, refund));
    expect([limited.status, limited.metadata.get("retry-after")]).toEqual([status.RESOURCE_EXHAUSTED, ["4"]]);
    grpc.operations.failNext("create", new BrokerError("ledger_away", "Away."));
    expect((await refusedWith(create(grpc, refund))).status).toBe(status.UNAVAILABLE);
  });

  it("refuses a message over 8 MiB", async () => {
    const grpc = await startTestGrpc();
    await expect(create(grpc, { ...refund, argumentsJson: JSON.stringify("x".repeat(9_000_000)) })).rejects.toMatchObject({
      code: status.OUT_OF_RANGE,
      details: expect.stringContaining("over the limit of 8388608 bytes"),
    });
    const one = { ...refund, argumentsJson: JSON.stringify("x".repeat(250_000)) };
    const batch = await answered<CreateBatchResponse>((done) =>
      grpc.calls.createBatch({ calls: Array.from({ length: 64 }, () => one), waitSeconds: undefined }, withKey(), done),
    );
    expect(batch.data.map(({ answer }) => answer?.$case)).toEqual(Array.from({ length: 64 }, () => "call"));
  });
});

describe("creations over one stream", () => {
  it("are answered in any order under their numbers, refusals among them", async () => {
    const grpc = await startTestGrpc();
    const answers: CreateCallsResponse[] = [];
    const stream = grpc.calls.createCalls(withKey());
    stream.on("data", (answer: CreateCallsResponse) => answers.push(answer));
    stream.write({ number: 1, call: { ...refund, waitSeconds: 60 } });
    stream.write({ number: 2, call: { ...refund, tool: "instant" } });
    stream.write({ number: 3, call: { ...refund, toolset: "none" } });
    stream.write({ number: 4, call: undefined });
    stream.write({ number: 5, call: { ...refund, argumentsJson: "{" } });
    await expect.poll(() => answers.length).toBe(4);
    grpc.operations.settle("call_0001", "late");
    stream.end();
    await once(stream, "end");
    const outcome = (answer: CreateCallsResponse): unknown =>
      answer.answer?.$case === "call" ? answer.answer.value.state : answer.answer?.value.code;
    expect(answers.map((answer) => [answer.number, outcome(answer)]).sort()).toEqual([
      [1, "succeeded"],
      [2, "succeeded"],
      [3, "toolset_unknown"],
      [4, "body_invalid"],
      [5, "body_invalid"],
    ]);
    expect(answers.at(-1)?.number).toBe(1);
  });

  it("never queue behind waits: when all places are taken the oldest wait is answered as it is", async () => {
    const grpc = await startTestGrpc();
    const answers: CreateCallsResponse[] = [];
    const stream = grpc.calls.createCalls(withKey());
    stream.on("data", (answer: CreateCallsResponse) => answers.push(answer));
    const many = IN_FLIGHT_MAX + 50;
    for (let number = 1; number <= many; number += 1) stream.write({ number, call: { ...refund, waitSeconds: 60 } });
    await expect.poll(() => grpc.operations.callIds.length, { timeout: 10_000 }).toBe(many);
    await expect.poll(() => answers.length, { timeout: 10_000 }).toBe(many - IN_FLIGHT_MAX + 1);
    expect(answers.every(({ answer }) => answer?.$case === "call" && answer.value.state === "queued")).toBe(true);
    expect(answers.map(({ number }) => number)).toEqual(Array.from({ length: answers.length }, (_, index) => index + 1));
    for (const id of grpc.operations.callIds) grpc.operations.settle(id, 1);
    await expect.poll(() => answers.length, { timeout: 10_000 }).toBe(many);
    stream.end();
    await once(stream, "end");
  });

  it("stop when their client goes, and end with the broker's drain once all are answered", async () => {
    const grpc = await startTestGrpc();
    const gone = grpc.calls.createCalls(withKey());
    gone.on("error", () => undefined);
    gone.write({ number: 1, call: { ...refund, waitSeconds: 60 } });
    await expect.poll(() => grpc.operations.openWaits).toBe(1);
    gone.cancel();
    await expect.poll(() => grpc.operations.openWaits).toBe(0);

    const answers: CreateCallsResponse[] = [];
    const stream = grpc.calls.createCalls(withKey());
    stream.on("data", (answer: CreateCallsResponse) => answers.push(answer));
    const error = once(stream, "error");
    stream.write({ number: 9, call: { ...refund, waitSeconds: 60 } });
    await expect.poll(() => grpc.operations.openWaits).toBe(1);
    grpc.gateway.beginDrain();
    expect((await error)[0]).toMatchObject({ code: status.UNAVAILABLE });
    expect(answers).toMatchObject([{ number: 9, answer: { $case: "call", value: { state: "queued" } } }]);
  });

  it("are refused once their key is revoked", async () => {
    let valid = true;
    const { agent, runner } = createFakeAuthenticator();
    const grpc = await startTestGrpc({ authenticator: { agent: async (key) => (valid ? await agent(key) : undefined), runner } });
    const answers: CreateCallsResponse[] = [];
    const stream = grpc.calls.createCalls(withKey());
    stream.on("data", (answer: CreateCallsResponse) => answers.push(answer));
    stream.write({ number: 1, call: refund });
    await expect.poll(() => answers.length).toBe(1);
    valid = false;
    let number = 1;
    await expect
      .poll(
        () => {
          number += 1;
          stream.write({ number, call: refund });
          return answers.some(({ answer }) => answer?.$case === "error" && answer.value.code === "key_invalid");
        },
        { timeout: 5_000, interval: 100 },
      )
      .toBe(true);
    stream.end();
    await once(stream, "end");
  });
});

describe("health and reflection over gRPC", () => {
  const Health = makeGenericClientConstructor(healthDefinition as unknown as ServiceDefinition, "Health");

  it("answers health checks without a key, and tells watchers of the drain", async () => {
    let problems = [{ part: "ledger", message: "Away." }];
    const grpc = await startTestGrpc({ health: { check: async () => problems } });
    const client = new Health(grpc.address, credentials.createInsecure());
    const check = (service: string): Promise<unknown> => answered((done) => client.check?.({ service }, new Metadata(), done));
    expect(await check("")).toEqual({ status: "NOT_SERVING" });
    problems = [];
    expect(await check("toolrunner.v1.Calls")).toEqual({ status: "SERVING" });
    await expect(check("other.Service")).rejects.toMatchObject({ code: status.NOT_FOUND });
    const seen: unknown[] = [];
    const watch = client.watch?.({ service: "" }, new Metadata());
    watch?.on("data", (message: unknown) => seen.push(message));
    await expect.poll(() => seen).toEqual([{ status: "SERVING" }]);
    grpc.gateway.beginDrain();
    await expect.poll(() => seen, { timeout: 5_000 }).toEqual([{ status: "SERVING" }, { status: "NOT_SERVING" }]);
    client.close();
  });

  it("reflects its services to who has a key", async () => {
    const grpc = await startTestGrpc();
    const json = { requestSerialize: (value: Buffer) => value, responseDeserialize: (value: Buffer) => value };
    const definition: ServiceDefinition = {
      info: {
        path: "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        requestStream: true,
        responseStream: true,
        requestDeserialize: (value) => value,
        responseSerialize: (value: Buffer) => value,
        ...json,
      },
    };
    const Reflection = makeGenericClientConstructor(definition, "Reflection");
    const client = new Reflection(grpc.address, credentials.createInsecure());
    const listServices = Buffer.from([0x3a, 0x01, 0x2a]);
    const ask = client.info;
    if (ask === undefined) throw new Error("no such method");
    const refused = ask.call(client, new Metadata());
    refused.on("data", () => undefined);
    const error = once(refused, "error");
    refused.write(listServices);
    expect((await error)[0]).toMatchObject({ code: status.UNAUTHENTICATED });
    const stream = ask.call(client, withKey());
    stream.write(listServices);
    const [answer] = await once(stream, "data");
    for (const service of ["Calls", "Catalog", "Diagnostics", "RunnerGateway"])
      expect(String(answer)).toContain(`toolrunner.v1.${service}`);
    stream.end();
    client.close();
  });
});

describe("closing the gRPC gateway", () => {
  it("answers waits and ends streams", async () => {
    const grpc = await startTestGrpc({ limits: { closeGraceMs: 300 } });
    const waiting = create(grpc, { ...refund, waitSeconds: 60 });
    await expect.poll(() => grpc.operations.openWaits).toBe(1);
    const idle = grpc.calls.createCalls(withKey());
    idle.on("data", () => undefined);
    const ended = once(idle, "error");
    await create(grpc, refund);
    const started = performance.now();
    await Promise.all([grpc.gateway.close(), grpc.gateway.close()]);
    expect(performance.now() - started).toBeLessThan(3_000);
    expect((await waiting).state).toBe("queued");
    await ended;
    await expect(create(grpc, refund)).rejects.toMatchObject({ code: status.UNAVAILABLE });
  });

  it("refuses new calls while it drains, and still reads", async () => {
    const grpc = await startTestGrpc();
    const { id } = await create(grpc, refund);
    grpc.gateway.beginDrain();
    expect((await refusedWith(create(grpc, refund))).error.code).toBe("draining");
    expect(await answered<Call>((done) => grpc.calls.getCall({ id, waitSeconds: 60 }, withKey(), done))).toMatchObject({ state: "queued" });
  });
});
