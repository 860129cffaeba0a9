/**
 * A link of the run: a loopback proxy whose network is as bad as its fault says.
 *
 * Invariants:
 * - What one side sent arrives whole and in order, or the connection ends: only `swallow` loses bytes, and it ends its connections.
 * - While a direction is held back, swallowed or dropped, nobody learns over it that the other side has gone.
 * - A link to several targets takes the next one for each new connection, as a load balancer does.
 */
import { execFileSync } from "node:child_process";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import type { Direction, LinkFault } from "./faults.js";
import type { SeededRandom } from "./seeded-random.js";

export interface Affliction {
  readonly kind: LinkFault;
  readonly direction: Direction;
  readonly delayMs: number;
}

export interface Link {
  /** On 127.0.0.1. */
  readonly port: number;
  /** Begins a fault; one at a time. */
  afflict(affliction: Affliction): void;
  /** Ends it. No-op when there is none. */
  heal(): void;
  close(): Promise<void>;
}

export interface LinkOptions {
  /** Ports on 127.0.0.1, asked at each connection. */
  readonly targets: () => readonly number[];
  readonly random: SeededRandom;
  /** Whether packets can be dropped below TCP here; otherwise `drop` is `hold`. Default `false`. */
  readonly dropsPackets?: boolean;
}

/** More than this waits in the sender's socket. */
const HELD_BYTES_MAX = 4 * 1_048_576;
const PIECE_BYTES_MAX = 29;
const SPLIT_BYTES_MAX = 600;

/** Starts the proxy. Resolves when it listens. */
export async function startLink({ targets, random, dropsPackets = false }: LinkOptions): Promise<Link> {
  const connections = new Set<Connection>();
  let affliction: Affliction | null = null;
  let turn = 0;
  const rules: string[][] = [];
  const server = createServer({ allowHalfOpen: true }, (near) => {
    const all = targets();
    const target = all[turn % Math.max(1, all.length)];
    turn += 1;
    if (affliction?.kind === "cut" || target === undefined) {
      near.destroy();
      return;
    }
    const far = connect({ port: target, host: "127.0.0.1", allowHalfOpen: true });
    const connection = new Connection(near, far, random, () => connections.delete(connection));
    connections.add(connection);
    connection.afflict(affliction);
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", resolve);
  });
  const { port } = server.address() as AddressInfo;

  const heal = (): void => {
    for (const rule of rules.splice(0)) execFileSync("iptables", ["-D", ...rule]);
    affliction = null;
    for (const connection of [...connections]) connection.afflict(null);
  };
  return {
    port,
    afflict(next) {
      heal();
      if (next.kind === "drop" && dropsPackets) {
        for (const [side, direction] of [
          ["--dport", "up"],
          ["--sport", "down"],
        ] as const) {
          if (next.direction !== "both" && next.direction !== direction) continue;
          const rule = ["INPUT", "-i", "lo", "-p", "tcp", side, String(port), "-j", "DROP"];
          execFileSync("iptables", ["-A", ...rule]);
          rules.push(rule);
        }
        return;
      }
      affliction = next.kind === "drop" ? { ...next, kind: "hold" } : next;
      for (const connection of [...connections]) {
        if (affliction.kind === "cut") connection.end();
        else connection.afflict(affliction);
      }
    },
    heal,
    async close() {
      heal();
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      for (const connection of [...connections]) connection.end();
      await closed;
    },
  };
}

/** One connection through the link: two pipes that end together, unless the fault keeps the end from being seen. */
class Connection {
  readonly #pipes: readonly [Pipe, Pipe];

  constructor(
    readonly near: Socket,
    readonly far: Socket,
    random: SeededRandom,
    readonly onEnd: () => void,
  ) {
    this.#pipes = [new Pipe(near, far, random), new Pipe(far, near, random)];
    for (const [index, socket] of [near, far].entries()) {
      socket.setNoDelay(true);
      socket.on("error", () => socket.destroy());
      socket.on("close", () => {
        const pipe = this.#pipes[index];
        pipe?.sourceGone();
        this.#review();
      });
    }
  }

  afflict(affliction: Affliction | null): void {
    for (const [pipe, direction] of [
      [this.#pipes[0], "up"],
      [this.#pipes[1], "down"],
    ] as const) {
      const own = affliction !== null && (affliction.direction === "both" || affliction.direction === direction) ? affliction : null;
      pipe.afflict(own);
    }
    this.#review();
  }

  end(): void {
    this.near.destroy();
    this.far.destroy();
    this.onEnd();
  }

  #review(): void {
    if (this.#pipes.some((pipe) => pipe.isBroken)) this.end();
  }
}

interface Piece {
  readonly bytes: Buffer;
  readonly dueMs: number;
}

/** One direction of a connection. */
class Pipe {
  #affliction: Affliction | null = null;
  #queue: Piece[] = [];
  #queuedBytes = 0;
  #ended = false;
  #gone = false;
  #lost = false;
  #scheduled = false;

  constructor(
    readonly source: Socket,
    readonly sink: Socket,
    readonly random: SeededRandom,
  ) {
    source.on("data", (bytes: Buffer) => this.#take(bytes));
    source.on("end", () => {
      this.#ended = true;
      this.#pump();
    });
    sink.on("drain", () => this.#pump());
  }

  /** Its source has gone and that may be seen, or bytes were lost and the network is well again. */
  get isBroken(): boolean {
    if (this.#isSilent) return false;
    return this.#lost || (this.#gone && this.#queue.length === 0);
  }

  get #isSilent(): boolean {
    return this.#affliction?.kind === "hold" || this.#affliction?.kind === "swallow";
  }

  sourceGone(): void {
    this.#gone = true;
    // What it had sent goes before; to a sink that is gone too nothing more goes.
    if (this.sink.destroyed) this.#queue = [];
    else this.#pump();
  }

  afflict(affliction: Affliction | null): void {
    this.#affliction = affliction;
    this.#pump();
  }

  #take(bytes: Buffer): void {
    if (this.#affliction?.kind === "swallow") {
      this.#lost = true;
      return;
    }
    const last = this.#queue.at(-1)?.dueMs ?? 0;
    const dueMs = Math.max(last, performance.now() + (this.#affliction?.kind === "delay" ? this.#affliction.delayMs : 0));
    const pieces = this.#affliction?.kind === "split" ? this.#split(bytes) : [bytes];
    for (const piece of pieces) this.#queue.push({ bytes: piece, dueMs });
    this.#queuedBytes += bytes.length;
    if (this.#queuedBytes > HELD_BYTES_MAX) this.source.pause();
    this.#pump();
  }

  /** The beginning, where headers and small frames are, in small pieces; the rest whole. */
  #split(bytes: Buffer): Buffer[] {
    const pieces: Buffer[] = [];
    let offset = 0;
    while (offset < Math.min(bytes.length, SPLIT_BYTES_MAX)) {
      const end = offset + this.random.between(1, PIECE_BYTES_MAX);
      pieces.push(bytes.subarray(offset, end));
      offset = end;
    }
    if (offset < bytes.length) pieces.push(bytes.subarray(offset));
    return pieces;
  }

  #pump(): void {
    while (!this.#isSilent && !this.#scheduled && this.sink.writable) {
      const next = this.#queue[0];
      if (next === undefined) break;
      const wait = next.dueMs - performance.now();
      if (wait > 0) {
        this.#later(wait);
        return;
      }
      this.#queue.shift();
      this.#queuedBytes -= next.bytes.length;
      const room = this.sink.write(next.bytes);
      if (this.#queuedBytes <= HELD_BYTES_MAX) this.source.resume();
      if (!room) return;
      // Each piece in a turn of its own, so that it is a packet of its own.
      if (this.#affliction?.kind === "split") this.#later(0);
    }
    if (this.#isSilent || this.#queue.length > 0) return;
    if (this.#gone) this.sink.destroySoon();
    else if (this.#ended && this.sink.writable) this.sink.end();
  }

  #later(waitMs: number): void {
    this.#scheduled = true;
    const go = (): void => {
      this.#scheduled = false;
      this.#pump();
    };
    if (waitMs > 0) setTimeout(go, waitMs);
    else setImmediate(go);
  }
}
