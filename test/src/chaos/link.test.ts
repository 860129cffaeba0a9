import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { eventually } from "../kit/eventually.js";
import { type Link, startLink } from "./link.js";
import { seededRandom } from "./seeded-random.js";

let server: Server;
let accepted: Socket[];
let received: Buffer[];
let link: Link;
beforeEach(async () => {
  accepted = [];
  received = [];
  server = createServer((socket) => {
    accepted.push(socket);
    socket.on("error", () => {});
    socket.on("data", (bytes) => {
      received.push(bytes);
      socket.write(bytes);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  link = await startLink({ targets: () => [(server.address() as AddressInfo).port], random: seededRandom(1, "link") });
});
afterEach(async () => {
  await link.close();
  for (const socket of accepted) socket.destroy();
  server.close();
});

interface Peer {
  readonly socket: Socket;
  text(): string;
  readonly closed: Promise<unknown>;
}

async function dial(): Promise<Peer> {
  const socket = connect(link.port, "127.0.0.1");
  let text = "";
  socket.setEncoding("utf8").on("data", (chunk: string) => {
    text += chunk;
  });
  socket.on("error", () => {});
  const closed = once(socket, "close");
  await once(socket, "connect");
  return { socket, text: () => text, closed };
}

const both = { direction: "both", delayMs: 0 } as const;
const got = (): string => Buffer.concat(received).toString();

describe("a link", () => {
  it("carries bytes both ways, and the end of a connection", async () => {
    const peer = await dial();
    peer.socket.write("hello");
    await eventually("the echo", () => peer.text() === "hello");
    peer.socket.end();
    await peer.closed;
  });

  it("that splits hands everything on whole, in more pieces than were sent", async () => {
    link.afflict({ kind: "split", ...both });
    const peer = await dial();
    const text = "0123456789".repeat(300);
    peer.socket.write(text);
    await eventually("the echo", () => peer.text() === text);
    expect(received.length).toBeGreaterThan(5);
  });

  it("that delays keeps the order, and takes its time", async () => {
    const peer = await dial();
    link.afflict({ kind: "delay", direction: "up", delayMs: 120 });
    const began = performance.now();
    peer.socket.write("one ");
    peer.socket.write("two ");
    await eventually("some of it", () => got() === "one two ");
    expect(performance.now() - began).toBeGreaterThan(100);
    link.heal();
    peer.socket.write("three");
    await eventually("all of it", () => got() === "one two three");
  });

  it("that holds one direction back delivers it when it is healed, and the other one at once", async () => {
    const peer = await dial();
    link.afflict({ kind: "hold", direction: "down", delayMs: 0 });
    peer.socket.write("held");
    await eventually("what goes up", () => got() === "held");
    expect(peer.text()).toBe("");
    link.heal();
    await eventually("what comes down", () => peer.text() === "held");
  });

  it("that holds back does not tell that the other side has gone", async () => {
    const peer = await dial();
    peer.socket.write("a");
    await eventually("the echo", () => peer.text() === "a");
    link.afflict({ kind: "hold", ...both });
    accepted[0]?.destroy();
    await once(accepted[0] as Socket, "close");
    let closed = false;
    void peer.closed.then(() => {
      closed = true;
    });
    await new Promise((resolve) => setTimeout(resolve, 60));
    expect(closed).toBe(false);
    link.heal();
    await peer.closed;
  });

  it("that swallows ends what lost bytes when it is healed, and nothing else", async () => {
    const [loser, keeper] = [await dial(), await dial()];
    link.afflict({ kind: "swallow", ...both });
    loser.socket.write("lost");
    await eventually("the bytes to leave", () => loser.socket.bytesWritten === 4 && loser.socket.writableLength === 0);
    await new Promise((resolve) => setTimeout(resolve, 40));
    link.heal();
    await loser.closed;
    keeper.socket.write("kept");
    await eventually("the echo", () => keeper.text() === "kept");
    expect(got()).toBe("kept");
  });

  it("that is cut ends what there is, and refuses until it is healed", async () => {
    const peer = await dial();
    link.afflict({ kind: "cut", ...both });
    await peer.closed;
    const refused = await dial();
    await refused.closed;
    link.heal();
    const again = await dial();
    again.socket.write("back");
    await eventually("the echo", () => again.text() === "back");
  });

  it("to a target that is away ends the connection, and takes the next target for the next one", async () => {
    const spare = createServer((socket) => socket.end("spare"));
    spare.listen(0, "127.0.0.1");
    await once(spare, "listening");
    const gone = createServer();
    gone.listen(0, "127.0.0.1");
    await once(gone, "listening");
    const away = (gone.address() as AddressInfo).port;
    await new Promise((resolve) => gone.close(resolve));
    const balancer = await startLink({ targets: () => [away, (spare.address() as AddressInfo).port], random: seededRandom(1, "b") });
    try {
      const texts: string[] = [];
      for (let dialled = 0; dialled < 2; dialled += 1) {
        const socket = connect(balancer.port, "127.0.0.1");
        let text = "";
        socket.setEncoding("utf8").on("data", (chunk: string) => {
          text += chunk;
        });
        socket.on("error", () => {});
        await once(socket, "close");
        texts.push(text);
      }
      expect(texts).toEqual(["", "spare"]);
    } finally {
      await balancer.close();
      spare.close();
    }
  });
});
