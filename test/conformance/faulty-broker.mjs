/**
 * A subject of the broker suite with a planted fault: `toolrunner dev` behind a proxy that alters frames (JSON only). With it the suite's own
 * tests make sure that a broker with such a fault would be found.
 */
import { spawn } from "node:child_process";
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { WebSocket, WebSocketServer } from "ws";

const fault = process.argv[2];
const drop = () => undefined;
const rename = (from, to, more) => (frame) => (from in frame ? { [to]: { ...frame[from], ...more } } : frame);
const set = (kind, more) => rename(kind, kind, more);
const lose =
  (...kinds) =>
  (frame) =>
    kinds.some((kind) => kind in frame) ? drop() : frame;
/** What becomes of a frame on its way; undefined: it is lost. */
const FROM_BROKER = {
  "epoch-stands": set("welcome", { sessionEpoch: "1" }),
  "answers-alike": set("receiptAck", { disposition: "RECEIPT_DISPOSITION_SETTLED" }),
  "acknowledges-anything": rename("protocolFault", "receiptAck", { disposition: "RECEIPT_DISPOSITION_EXPIRED" }),
  "fence-stands": set("grant", { fence: "7" }),
  "no-lease": set("welcome", { leaseMs: 0 }),
  "loses-cancels": lose("cancel"),
  "skips-unknown-frames": lose("protocolFault"),
  "never-revokes": lose("revoke"),
};
const FROM_RUNNER = {
  "grants-too-much": set("hello", { slots: 4 }),
  "believes-any-journal": set("hello", { journalId: "jrn_conformance" }),
  "hears-no-drain": lose("claim", "drain"),
  "hears-no-decline": lose("decline"),
  "starts-again": (frame) =>
    "hello" in frame
      ? { hello: { ...frame.hello, held: frame.hello.held?.map((one) => ({ ...one, phase: "GRANT_PHASE_NOT_STARTED" })) } }
      : frame,
  "asks-for-nothing": (frame) => ("hello" in frame ? { hello: { ...frame.hello, protocolVersions: [1] } } : frame),
};
const CLOSE = fault === "closes-with-anything" ? () => 4500 : (code) => (code === 1005 || code === 1006 ? 1000 : code);

const dev = spawn(process.execPath, [fileURLToPath(new URL("./dev-broker.mjs", import.meta.url))], { stdio: ["pipe", "pipe", "inherit"] });
createInterface({ input: process.stdin })
  .on("line", (line) => dev.stdin.write(`${line}\n`))
  .on("close", () => process.exit());
createInterface({ input: dev.stdout }).once("line", (line) => {
  const ready = JSON.parse(line);
  const http = createServer();
  const server = new WebSocketServer({ server: http, path: "/v1/runner", handleProtocols: (offered) => [...offered][0] });
  server.on("connection", (near, request) => {
    const { authorization } = request.headers;
    const far = new WebSocket(ready.ws, [near.protocol], { headers: authorization === undefined ? {} : { authorization } });
    const early = [];
    carry(near, (text) => (far.readyState === WebSocket.OPEN ? far.send(text) : early.push(text)), FROM_RUNNER[fault]);
    far.on("open", () => {
      for (const text of early.splice(0)) far.send(text);
    });
    carry(far, (text) => near.send(text), FROM_BROKER[fault]);
    near.on("close", () => far.terminate());
    far.on("close", (code) => near.close(CLOSE(code)));
    for (const socket of [near, far]) socket.on("error", () => undefined);
  });
  http.listen(0, "127.0.0.1", () => {
    process.stdout.write(`${JSON.stringify({ ...ready, ws: `ws://127.0.0.1:${http.address().port}/v1/runner` })}\n`);
  });
});

function carry(from, send, alter = (frame) => frame) {
  from.on("message", (data) => {
    const altered = alter(JSON.parse(String(data)));
    if (altered !== undefined) send(JSON.stringify(altered));
  });
}
