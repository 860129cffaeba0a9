import { request } from "node:http";
import { afterEach, describe, expect, it } from "vitest";
import { BrokerError } from "../../domain/broker-error.js";
import { FULL_KEY } from "../testing/fake-operations.js";
import { startTestGateway, stopTestGateways } from "../testing/http-kit.js";
import { createOriginCheck, type OriginRules } from "./origin-policy.js";

afterEach(stopTestGateways);

function passes(rules: OriginRules, headers: { readonly host?: string; readonly origin?: string }): boolean {
  try {
    createOriginCheck(rules)(headers);
    return true;
  } catch (error) {
    expect(error).toBeInstanceOf(BrokerError);
    expect(error).toMatchObject({ code: "origin_not_permitted" });
    return false;
  }
}

const dev: OriginRules = { loopbackOnly: true, allowOrigins: ["https://app.example", "http://desk.example:8080", "app://shell"] };

describe("a development broker", () => {
  it("answers loopback hosts and those of allowed origins, on any port", () => {
    for (const host of [
      "localhost",
      "localhost:7070",
      "LOCALHOST:1",
      "a.localhost",
      "127.0.0.1",
      "127.8.9.1:80",
      "[::1]",
      "[::1]:7070",
      "app.example",
      "app.example:444",
      "desk.example",
    ]) {
      expect([host, passes(dev, { host })]).toEqual([host, true]);
    }
  });

  it("answers no other host (DNS rebinding)", () => {
    const hosts = [
      "evil.example",
      "localhost.evil.example",
      "127.0.0.1.evil.example",
      "evil.example:7070",
      "10.0.0.1",
      "0.0.0.0",
      "[::]",
      "[fe80::1]",
      "localhost@evil.example",
      "localhost/x",
      "localhost#x",
      "local host",
      "",
    ];
    for (const host of hosts) expect([host, passes(dev, { host })]).toEqual([host, false]);
    expect(passes(dev, {})).toBe(false);
  });

  it("answers loopback origins and allowed ones only", () => {
    const host = "localhost:7070";
    for (const origin of [
      "http://localhost:3000",
      "https://127.0.0.1",
      "http://[::1]:5173",
      "https://app.example",
      "http://desk.example:8080",
      "app://shell",
    ]) {
      expect([origin, passes(dev, { host, origin })]).toEqual([origin, true]);
    }
    for (const origin of [
      "https://evil.example",
      "http://app.example",
      "https://app.example:444",
      "http://desk.example",
      "null",
      "",
      "file://",
      "app://other",
      "ftp://localhost",
      "https://app.example.evil",
    ]) {
      expect([origin, passes(dev, { host, origin })]).toEqual([origin, false]);
    }
  });

  it("refuses an allowed origin that is none", () => {
    for (const origin of ["app.example", "*", ""])
      expect(() => createOriginCheck({ loopbackOnly: true, allowOrigins: [origin] })).toThrow(RangeError);
  });

  it("refuses before it looks at a key, health addresses included", async () => {
    const { port } = await startTestGateway();
    for (const path of ["/healthz", "/v1/calls", "/nothing", "/%zz"]) {
      const status = await new Promise((resolve, reject) => {
        const sent = request({ port, path, headers: { host: "evil.example", authorization: `Bearer ${FULL_KEY}` } }, (response) => {
          response.resume();
          resolve(response.statusCode);
        });
        sent.on("error", reject).end();
      });
      expect([path, status]).toEqual([path, 403]);
    }
  });
});

describe("any other broker", () => {
  it("has no rules for Host and Origin: the key is what counts", () => {
    expect(passes({ loopbackOnly: false, allowOrigins: [] }, { host: "broker.example", origin: "https://evil.example" })).toBe(true);
    expect(passes({ loopbackOnly: false, allowOrigins: [] }, {})).toBe(true);
  });
});
