import { describe, expect, it } from "vitest";
import { type CpuProfile, partOf, shortened, sumProfile } from "./read-profile.js";

const frame = (functionName: string, url = "", lineNumber = -1) => ({ functionName, url, lineNumber, columnNumber: 0 });
const names = (times: readonly { readonly name: string }[]) => times.map(({ name }) => name);

const DRIVER = "file:///srv/broker/dist/wire/call-driver.js";

const profile: CpuProfile = {
  nodes: [
    { id: 1, callFrame: frame("(root)"), children: [2, 3, 5, 6] },
    { id: 2, callFrame: frame("(idle)") },
    { id: 3, callFrame: frame("append", DRIVER, 41), children: [4] },
    { id: 4, callFrame: frame("writeBuffer") },
    { id: 5, callFrame: frame("(garbage collector)") },
    { id: 6, callFrame: frame("append", DRIVER, 41) },
  ],
  samples: [2, 3, 4, 4, 5, 6],
  timeDeltas: [1_000, 1_000, 1_000, 1_000, 1_000, 1_000],
};

describe("the sums of a profile", () => {
  it("count self time only, join what a function spent under different callers, and leave idle time out", () => {
    const sums = sumProfile(profile);
    expect(sums).toMatchObject({ busyMs: 5, idleMs: 1 });
    expect(sums.functions[0]).toEqual({ name: "append broker/dist/wire/call-driver.js:42", selfMs: 2 });
  });

  it("charge files and parts with what V8 and Node did for them", () => {
    const sums = sumProfile(profile);
    expect(sums.files).toEqual([
      { name: "broker/dist/wire/call-driver.js", selfMs: 4 },
      { name: "(garbage collector)", selfMs: 1 },
    ]);
    expect(sums.parts[0]).toEqual({ name: "broker/wire", selfMs: 4 });
  });

  it("name whom native code worked for", () => {
    expect(names(sumProfile(profile).functions)).toContain("writeBuffer ← append broker/dist/wire/call-driver.js:42");
    expect(names(sumProfile(profile).functions)).toContain("(garbage collector)");
  });

  it("name places in the source where these are known", () => {
    const sums = sumProfile(profile, (_url, line) => ({ file: "broker/src/wire/call-driver.ts", line: line + 100 }));
    expect(names(sums.functions)).toContain("append broker/src/wire/call-driver.ts:141");
  });

  it("do not charge a function for the time in which the thread waited for a processor", () => {
    const sums = sumProfile({ ...profile, timeDeltas: [1_000, 1_000, 500_000, 1_000, 1_000, 1_000] });
    expect(sums.functions.find(({ name }) => name.startsWith("writeBuffer"))?.selfMs).toBe(5);
  });

  it("of an empty profile are empty", () => {
    expect(sumProfile({ nodes: [] })).toEqual({ busyMs: 0, idleMs: 0, functions: [], files: [], parts: [] });
  });
});

describe("a file of a profile", () => {
  it.each([
    ["file:///srv/app/node_modules/ws/lib/sender.js", "ws/lib/sender.js", "ws"],
    ["file:///srv/node_modules/a/node_modules/@grpc/grpc-js/build/x.js", "@grpc/grpc-js/build/x.js", "@grpc/grpc-js"],
    [DRIVER, "broker/dist/wire/call-driver.js", "broker/wire"],
    ["file:///srv/broker/dist/ledger/jetstream/requests.js", "broker/dist/ledger/jetstream/requests.js", "broker/ledger/jetstream"],
    ["file:///srv/proto/src/channel-core.ts", "proto/src/channel-core.ts", "proto"],
    ["node:internal/streams/writable", "node:internal/streams/writable", "node:streams"],
  ])("%s is named %s and belongs to %s", (url, name, part) => {
    expect(shortened(url)).toBe(name);
    expect(partOf(name)).toBe(part);
  });
});
