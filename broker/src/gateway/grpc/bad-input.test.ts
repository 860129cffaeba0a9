/** Arbitrary bytes against every unary method: refused with a reason, never a failure of ours. */

import { credentials, makeGenericClientConstructor, type ServiceDefinition, status } from "@grpc/grpc-js";
import { callsService, catalogService, diagnosticsService } from "@toolrunner/proto/services";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { RUNNER_KEY } from "../testing/fake-operations.js";
import { answered, startTestGrpc, stopTestGrpc, type TestGrpc, withKey } from "../testing/grpc-kit.js";

const services: readonly ServiceDefinition[] = [callsService, catalogService, diagnosticsService];
const methods = services.flatMap((service) => Object.values(service).filter((method) => !method.requestStream && !method.responseStream));

const FOR_RUNNERS = /\/(UpdateCall|SettleCall)$/;

/** Sends bytes as they are. */
const Raw = makeGenericClientConstructor(
  Object.fromEntries(
    methods.map((method) => [
      method.path,
      { ...method, requestSerialize: (bytes: Buffer) => bytes, responseDeserialize: (bytes: Buffer) => bytes },
    ]),
  ),
  "Raw",
);

let grpc: TestGrpc;
let client: InstanceType<typeof Raw>;
beforeAll(async () => {
  grpc = await startTestGrpc();
  client = new Raw(grpc.address, credentials.createInsecure());
});
afterAll(async () => {
  client.close();
  await stopTestGrpc();
});

async function statusOf(path: string, bytes: Buffer): Promise<number> {
  const method = client[path];
  if (typeof method !== "function") throw new Error(`no method ${path}`);
  const failed: unknown = await answered((done) =>
    Reflect.apply(method, client, [
      bytes,
      withKey(FOR_RUNNERS.test(path) ? RUNNER_KEY : undefined),
      { deadline: Date.now() + 10_000 },
      done,
    ]),
  ).then(
    () => undefined,
    (error: unknown) => error,
  );
  if (failed === undefined) return status.OK;
  if (failed instanceof Error && "code" in failed) return Number(failed.code);
  throw failed;
}

const FORESEEN = [status.OK, status.INVALID_ARGUMENT, status.NOT_FOUND, status.FAILED_PRECONDITION];

describe("arbitrary messages", () => {
  it("are never answered as failures of ours, and always answered", async () => {
    // Bytes, and fields that are well-formed with contents that are not expected there.
    const field = fc
      .tuple(
        fc.integer({ min: 1, max: 20 }),
        fc.oneof(
          fc.uint8Array({ maxLength: 30 }),
          fc.string().map((text) => Buffer.from(text)),
          fc.json().map((text) => Buffer.from(text)),
        ),
      )
      .map(([number, content]) =>
        Buffer.concat([
          Buffer.from([(number << 3) | 2, 1].slice(0, number > 15 ? 2 : 1)),
          Buffer.from([Math.min(content.length, 127)]),
          content.subarray(0, 127),
        ]),
      );
    const message = fc.oneof(
      fc.uint8Array({ maxLength: 200 }).map((bytes) => Buffer.from(bytes)),
      fc.array(field, { maxLength: 8 }).map((fields) => Buffer.concat(fields)),
    );
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...methods.map(({ path }) => path)), message, async (path, bytes) => {
        expect(FORESEEN).toContain(await statusOf(path, bytes));
      }),
      { numRuns: 500 },
    );
    expect(grpc.log.lines.filter(({ level }) => level === "error")).toEqual([]);
  });

  it("are refused when they are empty, unless nothing in them is needed", async () => {
    const lists = ["ListCalls", "ListBindings", "ListToolsets", "ListRunners"];
    for (const { path } of methods) {
      const code = await statusOf(path, Buffer.alloc(0));
      expect([path, code === status.OK]).toEqual([path, lists.some((name) => path.endsWith(`/${name}`))]);
    }
  });
});
