import { describe, expect, it } from "vitest";
import { CLOSE_CODES, type CloseCode, closeCodeNamed, grpcStatusOfClose, isCloseCode, redialRule } from "./close-codes.js";
import { ERROR_CODES, type ErrorCode, type ErrorType, grpcStatusOfError, isErrorCode } from "./error-codes.js";
import { GRPC_STATUS } from "./grpc-status.js";

const errors = Object.entries(ERROR_CODES) as [ErrorCode, (typeof ERROR_CODES)[ErrorCode]][];
const HTTP_OF_TYPE: Readonly<Record<ErrorType, number | null>> = {
  invalid_request_error: 400,
  authentication_error: 401,
  permission_error: 403,
  not_found_error: 404,
  expired_error: 410,
  conflict_error: 409,
  too_large_error: 413,
  rate_limit_error: 429,
  internal_error: 500,
  unavailable_error: 503,
  call_error: null,
  session_error: null,
};

describe("error table", () => {
  it("has every status of the interface and no other, one for each type", () => {
    for (const [code, row] of errors) expect({ code, http: row.http }).toEqual({ code, http: HTTP_OF_TYPE[row.type] });
    expect([...new Set(errors.map(([, row]) => row.http))].filter((http) => http !== null).sort()).toEqual([
      400, 401, 403, 404, 409, 410, 413, 429, 500, 503,
    ]);
  });

  it("has a gRPC status for every refusal, and one of its own for each HTTP status but for what is gone", () => {
    const pairs = new Map<number, Set<number | null>>();
    for (const [code, row] of errors) {
      const grpc = grpcStatusOfError(code);
      expect({ code, hasGrpc: grpc !== null }).toEqual({ code, hasGrpc: row.http !== null });
      if (row.http !== null) pairs.set(row.http, (pairs.get(row.http) ?? new Set()).add(grpc));
    }
    expect(Object.fromEntries([...pairs].map(([http, grpc]) => [http, [...grpc]]))).toEqual({
      400: [GRPC_STATUS.INVALID_ARGUMENT],
      401: [GRPC_STATUS.UNAUTHENTICATED],
      403: [GRPC_STATUS.PERMISSION_DENIED],
      404: [GRPC_STATUS.NOT_FOUND],
      410: [GRPC_STATUS.NOT_FOUND],
      409: [GRPC_STATUS.FAILED_PRECONDITION],
      413: [GRPC_STATUS.OUT_OF_RANGE],
      429: [GRPC_STATUS.RESOURCE_EXHAUSTED],
      500: [GRPC_STATUS.INTERNAL],
      503: [GRPC_STATUS.UNAVAILABLE],
    });
  });

  it("calls only what waiting can cure retryable", () => {
    expect(errors.filter(([, row]) => row.retryable).map(([, row]) => row.http)).toEqual(
      errors.filter(([, row]) => row.http === 429 || row.http === 500 || row.http === 503).map(([, row]) => row.http),
    );
  });

  it("says in sentences what each code means and what to do", () => {
    for (const [code, row] of errors) {
      expect(code).toMatch(/^[a-z][a-z_]*$/);
      expect(row.meaning).toMatch(/^[A-Z].*\.$/);
      expect(row.action).toMatch(/^[A-Z].*\.$/);
    }
  });

  it("is closed", () => {
    expect(isErrorCode("call_timed_out")).toBe(true);
    expect(isErrorCode("toString")).toBe(false);
  });
});

describe("close table", () => {
  const codes = Object.keys(CLOSE_CODES).map(Number) as CloseCode[];

  it("has codes that browsers may send, with names of their own", () => {
    for (const code of codes) expect(code === 1000 || (code >= 4000 && code <= 4999)).toBe(true);
    expect(new Set(codes.map((code) => CLOSE_CODES[code].name)).size).toBe(codes.length);
    for (const code of codes) expect(closeCodeNamed(CLOSE_CODES[code].name)).toBe(code);
    expect(closeCodeNamed("nothing")).toBeUndefined();
  });

  it("lets the range say whether to redial: 4400 to 4499 not as they are but for a late hello, 4500 to 4599 and everything unknown at once", () => {
    for (const code of codes) {
      const expected =
        code >= 4500 || code === 4408 ? "at_once" : code === 4401 ? "with_new_credential" : code === 4429 ? "after_retry_after" : "never";
      expect({ code, rule: redialRule(code) }).toEqual({ code, rule: expected });
    }
    for (const code of [1001, 1005, 1006, 1011, 4599, 3000]) expect(redialRule(code)).toBe("at_once");
    for (const code of [4402, 4499]) expect({ code, rule: redialRule(code) }).toEqual({ code, rule: "never" });
  });

  it("has a gRPC status for each code, OK for the normal end only", () => {
    for (const code of codes) expect(grpcStatusOfClose(code) === GRPC_STATUS.OK).toBe(code === 1000);
    expect(isCloseCode(4409)).toBe(true);
    expect(isCloseCode(1006)).toBe(false);
  });
});
