/** Reaches a broker over the gRPC stream `RunnerGateway/Session`. */
import { connectivityState, Metadata } from "@grpc/grpc-js";
import { CLOSE_CODES } from "@toolrunner/proto";
import { createGrpcStreamChannel, createRunnerGatewayClient, type GrpcTarget, parseGrpcUrl } from "@toolrunner/proto/services";
import { ConnectError, messageOf, RunnerConfigError } from "../core/errors.js";
import type { Transport } from "../core/transport.js";
import type { RunnerChannel } from "../core/wire.js";
import { sha256OfNode } from "./sha256.js";

const CONNECT_TIMEOUT_MS = 15_000;

/** Options of {@link connectGrpc}. */
export interface GrpcOptions {
  /** PEM certificates to trust instead of the system's, for `grpcs:`. */
  readonly rootCertificates?: string;
}

/**
 * A transport over gRPC. `url` is `grpc://host:port` (plain) or `grpcs://host:port` (TLS). The credential travels in the
 * metadata `authorization`.
 * @throws RunnerConfigError for another address.
 */
export function connectGrpc(url: string, options: GrpcOptions = {}): Transport {
  let target: GrpcTarget;
  try {
    target = parseGrpcUrl(url, options.rootCertificates === undefined ? {} : { rootCertificates: Buffer.from(options.rootCertificates) });
  } catch (error) {
    throw new RunnerConfigError("options_invalid", messageOf(error), null, { cause: error });
  }
  return {
    name: "grpc",
    carriesCredential: true,
    sha256: sha256OfNode,
    connect: ({ credential, signal }) =>
      new Promise<RunnerChannel>((resolve, reject) => {
        if (signal.aborted) return reject(new ConnectError("given up", null));
        // A client of its own for each attempt: the supervisor's back-off is the only one.
        const client = createRunnerGatewayClient(target.address, target.credentials, { "grpc.use_local_subchannel_pool": 1 });
        const connection = client.getChannel();
        const metadata = new Metadata();
        if (credential !== "") metadata.set("authorization", `Bearer ${credential}`);
        const channel = createGrpcStreamChannel(client.session(metadata), { side: "runner" });
        const giveUp = () => {
          reject(new ConnectError("given up", null));
          client.close();
        };
        signal.addEventListener("abort", giveUp);
        // A stream that cannot be connected ends, and its status says why; the state of the connection does not.
        void channel.closed.then(({ code, reason }) => {
          signal.removeEventListener("abort", giveUp);
          reject(new ConnectError(`cannot reach ${target.address}: ${reason}`, code in CLOSE_CODES ? code : null));
          client.close();
        });
        const watch = () => {
          if (signal.aborted) return;
          const state = connection.getConnectivityState(true);
          if (state === connectivityState.READY) {
            signal.removeEventListener("abort", giveUp);
            resolve(channel);
          } else if (state !== connectivityState.SHUTDOWN) connection.watchConnectivityState(state, Date.now() + CONNECT_TIMEOUT_MS, watch);
        };
        watch();
      }),
  };
}
