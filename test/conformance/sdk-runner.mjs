// A subject of the runner suite: the JavaScript SDK, told what to do in lines on stdin. Other languages write the same for theirs.
import { createInterface } from "node:readline";
import { brokerFrameCodec, runnerFrameCodec } from "@toolrunner/proto";
import { createRunner, defineTool, ToolError } from "@toolrunner/runner-sdk";
import { connectGrpc, connectWebSocket, fileJournal } from "@toolrunner/runner-sdk/node";

const say = (event) => process.stdout.write(`${JSON.stringify(event)}\n`);
const gates = new Map();
let runner;

/** Ends when the suite opens the gate, or with the signal's reason. */
function gate(ctx) {
  return new Promise((resolve, reject) => {
    gates.set(ctx.callId, () => resolve({ opened: true }));
    ctx.signal.addEventListener("abort", () => {
      if (ctx.signal.reason.code === "ended") return;
      say({ event: "aborted", call_id: ctx.callId });
      reject(ctx.signal.reason);
    });
  });
}

const RUN = {
  echo: (args) => args,
  gate: (_args, ctx) => gate(ctx),
  hold: (_args, ctx) => gate(ctx),
  lookup: (_args, ctx) => gate(ctx),
  fail: (args) => {
    throw new ToolError(args.code, args.message, { retryable: args.retryable });
  },
  fill: ({ bytes }) => "x".repeat(bytes),
};

const DO = {
  async serve({ url, wire, binding, token, runner_id, journal, slots, tools }) {
    runner = createRunner({
      transport: wire === "grpc" ? connectGrpc(url) : connectWebSocket(url, { encoding: wire === "websocket-json" ? "json" : "binary" }),
      binding,
      token,
      runnerId: runner_id,
      journal: fileJournal(journal),
      concurrency: slots,
      tools: tools.map((tool) =>
        defineTool({
          name: tool.name,
          version: tool.version,
          description: "A tool of the conformance suite.",
          input: {},
          behaviour: tool.read_only ? "read_only" : "write",
          idempotent: tool.idempotent,
          cancellable: tool.cancellable,
          run: (args, ctx) => {
            say({ event: "started", call_id: ctx.callId, fence: ctx.fence, attempt: ctx.attempt });
            return RUN[tool.name](args, ctx);
          },
        }),
      ),
    });
    await runner.start().catch(() => undefined);
  },
  describe: ({ name }) => say({ event: "described", name, durable_journal: true, codec: true }),
  open: ({ call_id }) => gates.get(call_id)?.(),
  async drain() {
    await runner.drain();
    process.exit(0);
  },
  reencode({ name, side, from, to, frame }) {
    const codec = side === "runner" ? runnerFrameCodec : brokerFrameCodec;
    const decoded = codec(from).decode(from === "binary" ? Buffer.from(frame, "hex") : frame);
    const encoded = codec(to).encode(decoded.frame);
    say({ event: "reencoded", name, frame: to === "binary" ? Buffer.from(encoded).toString("hex") : encoded });
  },
};

const lines = createInterface({ input: process.stdin });
lines.on("line", (line) => {
  const command = JSON.parse(line);
  void DO[command.do](command);
});
// Nobody is left to tell it what to do.
lines.once("close", () => process.exit());
