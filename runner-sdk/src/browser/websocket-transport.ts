/**
 * Reaches a broker over the browser's own WebSocket.
 *
 * Invariants: the credential travels in the hello, never in the address; a page that is left closes its connection at once, so that
 * its broker calls nobody who cannot answer, and dials again when it is shown again.
 */
import { createBinaryRunnerChannel, SUBPROTOCOLS } from "@toolrunner/proto";
import { ConnectError } from "../core/errors.js";
import type { Transport } from "../core/transport.js";
import { runnerAddress } from "../core/websocket-address.js";
import type { RunnerChannel } from "../core/wire.js";
import { createBrowserPlace } from "./detect-place.js";
import { indexedDbJournal } from "./indexed-db-journal.js";

/**
 * A transport over WebSocket, for pages and workers. `url` is `ws://`, `wss://`, `http://` or `https://`; without a path,
 * `/v1/runner` is meant. A runner that it serves has an id for its tab, and tells the broker whether the page can be seen.
 * @throws RunnerConfigError for another address, one with credentials in it, in a service worker, and where there is no WebSocket.
 */
export function connectWebSocket(url: string): Transport {
  const address = runnerAddress(url);
  const place = createBrowserPlace();
  return {
    name: "websocket_binary",
    carriesCredential: false,
    place,
    address: address.href,
    journal: indexedDbJournal(),
    flush: (body) => flush(address, body),
    async connect({ signal }) {
      await place.present(signal);
      const attempt = new AbortController();
      const giveUp = () => attempt.abort();
      signal.addEventListener("abort", giveUp);
      let channel: RunnerChannel | null = null;
      const off = place.onLeave(() => {
        if (channel === null) giveUp();
        else channel.close(4501, "the page is left");
      });
      try {
        if (signal.aborted) giveUp();
        channel = await open(address, attempt.signal);
        void channel.closed.then(off);
        return channel;
      } catch (error) {
        off();
        throw error;
      } finally {
        signal.removeEventListener("abort", giveUp);
      }
    },
  };
}

/** A body of text and no header of its own: the browser asks the broker nothing first, and sends it although the page is gone. */
function flush(address: URL, body: string): void {
  const target = new URL(address);
  target.protocol = address.protocol === "wss:" ? "https:" : "http:";
  target.pathname = `${address.pathname.replace(/\/$/, "")}/flush`;
  // The journal has all of it: whether it arrived is found out by the next session.
  fetch(target, { method: "POST", body, keepalive: true, credentials: "omit", referrerPolicy: "no-referrer" }).catch(() => undefined);
}

function open(address: URL, signal: AbortSignal): Promise<RunnerChannel> {
  return new Promise<RunnerChannel>((resolve, reject) => {
    if (signal.aborted) return reject(new ConnectError("given up", null));
    const socket = new WebSocket(address, [SUBPROTOCOLS.binary]);
    const channel = createBinaryRunnerChannel(socket);
    const fail = (message: string) => {
      signal.removeEventListener("abort", giveUp);
      reject(new ConnectError(message, null));
      socket.close();
    };
    const giveUp = () => fail("given up");
    signal.addEventListener("abort", giveUp);
    void channel.closed.then(() =>
      fail(
        `cannot reach ${address.host}. A browser does not say why: see that the broker runs, that it allows this page's origin, and that the page's policy does (connect-src)`,
      ),
    );
    socket.addEventListener("open", () => {
      signal.removeEventListener("abort", giveUp);
      resolve(channel);
    });
  });
}
