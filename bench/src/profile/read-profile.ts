/** Reads V8's `.cpuprofile`: where the time went, by function, by file and by part of the program. */

import { median } from "../statistics.js";

interface CallFrame {
  readonly functionName: string;
  readonly url: string;
  /** From 0; -1 for what has no source. */
  readonly lineNumber: number;
  readonly columnNumber: number;
}

export interface CpuProfile {
  readonly nodes: readonly { readonly id: number; readonly callFrame: CallFrame; readonly children?: readonly number[] }[];
  readonly samples?: readonly number[] | undefined;
  /** Before each sample, in microseconds. */
  readonly timeDeltas?: readonly number[] | undefined;
}

/** Time in something itself, without what it calls. */
export interface SelfTime {
  readonly name: string;
  readonly selfMs: number;
}

export interface ProfileSums {
  /** All but idle time. */
  readonly busyMs: number;
  readonly idleMs: number;
  /** Each most expensive first. A function of V8 or Node shows whom it worked for. */
  readonly functions: readonly SelfTime[];
  /** What V8 and Node did for a file is the file's. */
  readonly files: readonly SelfTime[];
  readonly parts: readonly SelfTime[];
}

/** Finds where generated code came from: `undefined` when that is not known. */
export type Locate = (url: string, line: number, column: number) => { readonly file: string; readonly line: number } | undefined;

const IDLE = "(idle)";
/** A gap longer than this many usual ones was not spent in the function that it ends in: the thread was kept waiting for a processor. */
const GAP_MAX = 4;
const US_PER_MS = 1_000;

/** Sums the samples of a profile. `locate` gives places in the source their names; default: those of the running code. */
export function sumProfile(profile: CpuProfile, locate: Locate = () => undefined): ProfileSums {
  const selfUs = new Map<number, number>();
  const { samples = [], timeDeltas = [] } = profile;
  const longest = timeDeltas.length === 0 ? 0 : median(timeDeltas) * GAP_MAX;
  samples.forEach((id, index) => {
    const us = Math.min(longest, Math.max(0, timeDeltas[index] ?? 0));
    selfUs.set(id, (selfUs.get(id) ?? 0) + us);
  });
  const parents = new Map(profile.nodes.flatMap((node) => (node.children ?? []).map((child) => [child, node] as const)));
  /** The nearest caller that is neither native nor of Node: whom a system call or a microtask is to be charged to. */
  const onBehalfOf = (id: number): CallFrame | undefined => {
    for (let node = parents.get(id); node !== undefined; node = parents.get(node.id))
      if (node.callFrame.url !== "" && !node.callFrame.url.startsWith("node:")) return node.callFrame;
    return undefined;
  };
  const functions = new Map<string, number>();
  const files = new Map<string, number>();
  const parts = new Map<string, number>();
  let idleUs = 0;
  let busyUs = 0;
  for (const { id, callFrame } of profile.nodes) {
    const us = selfUs.get(id) ?? 0;
    if (callFrame.functionName === IDLE) {
      idleUs += us;
      continue;
    }
    busyUs += us;
    if (us === 0) continue;
    const { file, line } = place(callFrame, locate);
    const caller = file === "" || file.startsWith("node:") ? onBehalfOf(id) : undefined;
    const name = `${callFrame.functionName || "(anonymous)"} ${described({ file, line })}`.trimEnd();
    const charged = caller === undefined ? undefined : place(caller, locate);
    add(functions, charged === undefined ? name : `${name} ← ${caller?.functionName} ${described(charged)}`, us);
    const payer = charged?.file ?? (file || callFrame.functionName);
    add(files, payer, us);
    add(parts, partOf(payer), us);
  }
  return {
    busyMs: busyUs / US_PER_MS,
    idleMs: idleUs / US_PER_MS,
    functions: sorted(functions),
    files: sorted(files),
    parts: sorted(parts),
  };
}

interface Place {
  readonly file: string;
  readonly line: number | undefined;
}

const described = ({ file, line }: Place): string => `${file}${line === undefined ? "" : `:${line}`}`;

function place(frame: CallFrame, locate: Locate): Place {
  if (frame.url === "") return { file: "", line: undefined };
  const found = locate(frame.url, frame.lineNumber, frame.columnNumber);
  return found ?? { file: shortened(frame.url), line: frame.lineNumber + 1 };
}

/** The path from the package on. */
export function shortened(url: string): string {
  const path = url.replace(/^file:\/\//, "");
  const installed = path.lastIndexOf("/node_modules/");
  if (installed >= 0) return path.slice(installed + "/node_modules/".length);
  return /\/((?:broker|proto|runner-sdk|agent-sdk|bench)\/(?:dist|src)\/.*)$/.exec(path)?.[1] ?? path;
}

/** A package of npm, a folder of the broker, or Node itself. */
export function partOf(file: string): string {
  if (file.startsWith("node:"))
    return `node:${
      file
        .slice("node:".length)
        .replace(/^internal\//, "")
        .split("/")[0]
    }`;
  const segments = file.split("/");
  if (/^(broker|proto|bench)$/.test(segments[0] ?? "") && segments.length > 2)
    return [segments[0], ...segments.slice(2, -1).slice(0, 2)].join("/");
  return file.startsWith("@") ? segments.slice(0, 2).join("/") : (segments[0] ?? file);
}

function add(sums: Map<string, number>, name: string, us: number): void {
  sums.set(name, (sums.get(name) ?? 0) + us);
}

function sorted(sums: ReadonlyMap<string, number>): readonly SelfTime[] {
  return [...sums].map(([name, us]) => ({ name, selfMs: us / US_PER_MS })).sort((a, b) => b.selfMs - a.selfMs);
}
