import { Ajv2020 } from "ajv/dist/2020.js";
import ajvFormats from "ajv-formats";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startTestGateway, stopTestGateways, type TestGateway } from "../testing/http-kit.js";
import { ROUTES } from "./routes.js";

interface Parameter {
  readonly name: string;
  readonly in: string;
  readonly required?: boolean;
  readonly schema: object;
}
interface Operation {
  readonly operationId: string;
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: { readonly content: Readonly<Record<string, { readonly schema: object }>> };
  readonly responses: Readonly<
    Record<string, { readonly description: string; readonly content?: Readonly<Record<string, { readonly schema: object }>> }>
  >;
  readonly security?: readonly object[];
}
interface Document {
  readonly openapi: string;
  readonly info: { readonly title: string; readonly version: string };
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: { readonly securitySchemes: Readonly<Record<string, object>> };
  readonly security: readonly object[];
}

let gateway: TestGateway;
let document: Document;
const ajv = new Ajv2020({ strict: false, allErrors: true });
ajvFormats.default(ajv);

beforeAll(async () => {
  gateway = await startTestGateway();
  const answer = await gateway.request("GET", "/openapi.json");
  expect(answer.status).toBe(200);
  document = answer.json as unknown as Document;
});
afterAll(stopTestGateways);

function braces(path: string): string {
  return path.replace(/\/:(\w+)/g, "/{$1}");
}

describe("/openapi.json", () => {
  it("names every route once, and none that does not exist", () => {
    const listed = Object.entries(document.paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
    );
    const known = [
      ...ROUTES.map((route) => `${route.method} ${braces(route.path)}`),
      "GET /healthz",
      "GET /readyz",
      "GET /openapi.json",
      "GET /metrics",
      "POST /v1/runner/flush",
    ];
    expect(listed.sort()).toEqual(known.sort());
    const ids = Object.values(document.paths).flatMap((methods) => Object.values(methods).map((operation) => operation.operationId));
    expect(new Set(ids).size).toBe(ids.length);
  });

  it("is a document of OpenAPI 3.1 in form", () => {
    expect(document.openapi).toMatch(/^3\.1\./);
    expect(document.info).toMatchObject({ title: "ToolRunner", version: "0.0.0-test" });
    for (const requirement of document.security)
      for (const name of Object.keys(requirement)) expect(document.components.securitySchemes).toHaveProperty(name);
    for (const [path, methods] of Object.entries(document.paths)) {
      for (const operation of Object.values(methods)) {
        const inPath = [...path.matchAll(/\{(\w+)\}/g)].map((match) => match[1]);
        const declared = (operation.parameters ?? []).filter((parameter) => parameter.in === "path");
        expect(declared.map((parameter) => parameter.name).sort()).toEqual([...inPath].sort());
        for (const parameter of declared) expect(parameter.required).toBe(true);
        for (const parameter of operation.parameters ?? []) expect(() => ajv.compile(parameter.schema)).not.toThrow();
        for (const [status, response] of Object.entries(operation.responses)) {
          expect(status).toMatch(/^([1-5]\d\d|[1-5]XX|default)$/);
          expect(response.description).not.toBe("");
          for (const { schema } of Object.values(response.content ?? {})) expect(() => ajv.compile(schema)).not.toThrow();
        }
        for (const { schema } of Object.values(operation.requestBody?.content ?? {})) expect(() => ajv.compile(schema)).not.toThrow();
      }
    }
  });

  it("lets nothing but the health addresses go without a key, and what has its key in the body", () => {
    const open = Object.entries(document.paths).flatMap(([path, methods]) =>
      Object.values(methods).flatMap((operation) => (operation.security?.length === 0 ? [path] : [])),
    );
    expect(open.sort()).toEqual(["/healthz", "/readyz", "/v1/runner/flush"]);
  });

  it("describes what the routes really answer", async () => {
    const { json } = await gateway.request("POST", "/v1/calls", { toolset: "shop", tool: "instant", arguments: { a: 1 } });
    await gateway.request("POST", "/v1/calls", { toolset: "shop", tool: "refund", arguments: {} });
    const unsettled = gateway.operations.callIds[1];
    const asked: readonly [string, string, string, unknown?][] = [
      ["POST", "/v1/calls", "/v1/calls", { toolset: "shop", tool: "refund", arguments: {} }],
      ["POST", "/v1/calls:batch", "/v1/calls:batch", { calls: [{ toolset: "shop", tool: "instant", arguments: {} }, { toolset: "no" }] }],
      ["POST", "/v1/calls/{id}/updates", `/v1/calls/${unsettled}/updates`, { text: "half", percentage: 50, data: [1] }],
      ["POST", "/v1/calls/{id}/receipt", `/v1/calls/${unsettled}/receipt`, { outcome: "succeeded", result: 7 }],
      ["GET", "/v1/calls", "/v1/calls"],
      ["GET", "/v1/calls/{id}", `/v1/calls/${json.id}`],
      ["GET", "/v1/calls/{id}/events", `/v1/calls/${json.id}/events`],
      ["GET", "/v1/calls/{id}/result", `/v1/calls/${json.id}/result`],
      ["POST", "/v1/calls/{id}/cancel", `/v1/calls/${unsettled}/cancel`],
      ["POST", "/v1/calls/{id}/confirmation", `/v1/calls/${json.id}/confirmation`, { decision: "allow" }],
      ["POST", "/v1/calls/{id}/reconcile", `/v1/calls/${unsettled}/reconcile`, { outcome: "applied", result: 7 }],
      ["PUT", "/v1/bindings/{id}", "/v1/bindings/desk", { name: "Desk", kind: "desktop" }],
      ["GET", "/v1/bindings/{id}", "/v1/bindings/desk"],
      ["GET", "/v1/bindings", "/v1/bindings"],
      ["POST", "/v1/bindings/{id}/keys", "/v1/bindings/desk/keys", { name: "n" }],
      ["GET", "/v1/bindings/{id}/keys", "/v1/bindings/desk/keys"],
      ["GET", "/v1/bindings/{id}/keys/{key_id}", "/v1/bindings/desk/keys/rkey_1"],
      ["DELETE", "/v1/bindings/{id}/keys/{key_id}", "/v1/bindings/desk/keys/rkey_1"],
      ["POST", "/v1/keys", "/v1/keys", { scopes: ["admin"] }],
      ["GET", "/v1/keys", "/v1/keys"],
      ["GET", "/v1/keys/{key_id}", "/v1/keys/key_1"],
      ["DELETE", "/v1/keys/{key_id}", "/v1/keys/key_1"],
      ["PUT", "/v1/toolsets/{id}", "/v1/toolsets/docs", { base_version: 0, tools: [] }],
      ["GET", "/v1/toolsets/{id}", "/v1/toolsets/docs"],
      ["GET", "/v1/toolsets/{id}/versions", "/v1/toolsets/docs/versions"],
      ["GET", "/v1/toolsets/{id}/versions/{version}", "/v1/toolsets/docs/versions/1"],
      ["GET", "/v1/toolsets", "/v1/toolsets"],
      ["GET", "/v1/runners", "/v1/runners"],
      ["GET", "/healthz", "/healthz"],
      ["GET", "/readyz", "/readyz"],
    ];
    expect(new Set(asked.map(([method, path]) => `${method} ${path}`)).size).toBe(ROUTES.length + 2);
    for (const [method, path, address, body] of asked) {
      const answer = await gateway.request(method, address, body);
      const responses = document.paths[path]?.[method.toLowerCase()]?.responses ?? {};
      const described = responses[String(answer.status)] ?? responses[`${String(answer.status)[0]}XX`];
      const schema = described?.content?.["application/json"]?.schema;
      expect(schema, `${method} ${path} ${answer.status} is not described`).toBeDefined();
      const validate = ajv.compile(schema ?? false);
      validate(answer.json);
      expect([method, path, answer.status, validate.errors]).toEqual([method, path, answer.status, null]);
    }
  });
});
