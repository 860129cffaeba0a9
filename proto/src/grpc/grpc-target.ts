/** Addresses of gRPC listeners as people write them. */
import { type ChannelCredentials, credentials } from "@grpc/grpc-js";

/** What grpc-js needs to dial. */
export interface GrpcTarget {
  /** `host:port`. */
  readonly address: string;
  readonly credentials: ChannelCredentials;
}

/**
 * Reads `grpc://host:port` (plain) or `grpcs://host:port` (TLS with the system's roots, or `rootCertificates` in PEM).
 * Throws a TypeError for any other form, and for credentials, a path or a query in the address.
 */
export function parseGrpcUrl(url: string, tls: { readonly rootCertificates?: Buffer | undefined } = {}): GrpcTarget {
  const parsed = URL.canParse(url) ? new URL(url) : undefined;
  const secure = parsed?.protocol === "grpcs:";
  if (parsed === undefined || !(secure || parsed.protocol === "grpc:") || parsed.hostname === "" || parsed.port === "") {
    throw new TypeError(`not a gRPC address: give grpc://host:port or grpcs://host:port`);
  }
  if (
    parsed.username !== "" ||
    parsed.password !== "" ||
    parsed.search !== "" ||
    parsed.hash !== "" ||
    !["", "/"].includes(parsed.pathname)
  ) {
    throw new TypeError("a gRPC address is scheme, host and port only; keys travel in the metadata");
  }
  return {
    address: parsed.host,
    credentials: secure ? credentials.createSsl(tls.rootCertificates ?? null) : credentials.createInsecure(),
  };
}
