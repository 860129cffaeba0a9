import { fromBinary, fromJson, type JsonValue, toBinary, toJson } from "@bufbuild/protobuf";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { FrameTooLargeError } from "./frame-channel.js";
import { brokerFrameCodec, encodingOfSubprotocol, FRAME_BYTES_MAX, FrameEncodeError, runnerFrameCodec } from "./frame-codec.js";
import { RunnerFrame } from "./gen/toolrunner/v1/session.js";
import { anyBrokerFrame, anyRunnerFrame, oracleOf } from "./testing/frame-arbitraries.js";
import { utf8Length } from "./utf8.js";

const binary = runnerFrameCodec("binary");
const json = runnerFrameCodec("json");
const progress = (text: string): RunnerFrame => RunnerFrame.create({ frame: { $case: "progress", value: { text } } });
const hex = (text: string): Uint8Array => Buffer.from(text, "hex");

function messageOf(decoded: { readonly kind: string; readonly message?: string }): string {
  expect(decoded.kind).toBe("malformed");
  return decoded.message ?? "";
}

describe("frame codec", () => {
  it.each([
    ["runner", "binary"],
    ["runner", "json"],
    ["broker", "binary"],
    ["broker", "json"],
  ] as const)("brings any frame of a %s back unchanged in %s", (side, encoding) => {
    if (side === "runner") roundTrip(anyRunnerFrame, runnerFrameCodec(encoding));
    else roundTrip(anyBrokerFrame, brokerFrameCodec(encoding));
  });

  function roundTrip<T>(
    frames: fc.Arbitrary<T>,
    codec: { encode(frame: T): Uint8Array | string; decode(data: Uint8Array | string): unknown },
  ): void {
    fc.assert(
      fc.property(frames, (frame) => {
        const data = codec.encode(frame);
        const bytes = typeof data === "string" ? utf8Length(data) : data.length;
        expect(codec.decode(data)).toEqual({ kind: "frame", bytes, frame });
      }),
    );
  }

  it("writes and reads JSON as a second implementation of protobuf does (R10)", () => {
    const oracle = oracleOf("runner");
    fc.assert(
      fc.property(anyRunnerFrame, (frame) => {
        const bytes = binary.encode(frame) as Uint8Array;
        // As text, which knows no negative zero.
        const text = JSON.stringify(toJson(oracle, fromBinary(oracle, bytes)));
        const theirs = JSON.parse(text) as JsonValue;
        expect(JSON.parse(json.encode(frame) as string)).toEqual(theirs);
        const read = json.decode(text);
        expect(read.kind === "frame" ? Buffer.from(binary.encode(read.frame) as Uint8Array) : read).toEqual(
          Buffer.from(toBinary(oracle, fromJson(oracle, theirs))),
        );
      }),
    );
  });

  it("refuses no JSON that the second implementation takes, and takes none that it refuses", () => {
    const oracle = oracleOf("runner");
    const leaf = fc.oneof(
      fc.constantFrom<JsonValue>(null, true, 0, 1, -1, 1.5, 4294967295, 4294967296, "", "0", "1", "-1", "1.5", "NaN"),
      fc.constantFrom<JsonValue>(
        "Infinity",
        "GRANT_PHASE_RUNNING",
        "RUNNING",
        "9007199254740991",
        "9223372036854775808",
        [],
        {},
        [null],
        [1],
      ),
    );
    const names = ["slots", "callId", "call_id", "fence", "phase", "percentage", "held", "focused", "labels", "visibility", "other"];
    const inner = fc.dictionary(fc.constantFrom(...names), leaf, { noNullPrototype: true });
    const value = fc.oneof(leaf, inner, fc.array(inner, { maxLength: 2 }));
    const message = fc.dictionary(fc.constantFrom(...names), value, { noNullPrototype: true });
    const frame = fc.dictionary(fc.constantFrom("claim", "started", "progress", "pong", "instance_state", "hello", "unknown"), message, {
      maxKeys: 2,
      noNullPrototype: true,
    });
    fc.assert(
      fc.property(frame, (candidate) => {
        let theirs: Buffer | "refused";
        try {
          theirs = Buffer.from(toBinary(oracle, fromJson(oracle, candidate as JsonValue, { ignoreUnknownFields: true })));
        } catch {
          theirs = "refused";
        }
        const decoded = json.decode(JSON.stringify(candidate));
        // Read and written once more by the other implementation: an empty value of a map entry may be left out or not.
        const ours =
          decoded.kind === "frame"
            ? Buffer.from(toBinary(oracle, fromBinary(oracle, binary.encode(decoded.frame) as Uint8Array)))
            : "refused";
        expect(ours).toEqual(theirs);
      }),
      { numRuns: 2_000 },
    );
  });

  it("turns any bytes into a typed outcome", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => {
        expect(["frame", "malformed"]).toContain(binary.decode(bytes).kind);
        expect(["frame", "malformed"]).toContain(brokerFrameCodec("binary").decode(bytes).kind);
      }),
      { numRuns: 5_000 },
    );
  });

  it("turns any damage to a frame into a typed outcome", () => {
    fc.assert(
      fc.property(anyRunnerFrame, fc.array(fc.tuple(fc.nat(), fc.nat(255)), { minLength: 1, maxLength: 4 }), (frame, damage) => {
        const bytes = Uint8Array.from(binary.encode(frame) as Uint8Array);
        for (const [at, value] of damage) if (bytes.length > 0) bytes[at % bytes.length] = value;
        expect(["frame", "malformed"]).toContain(binary.decode(bytes).kind);
      }),
      { numRuns: 2_000 },
    );
  });

  it("turns any text into a typed outcome", () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.json()), (text) => {
        expect(["frame", "malformed"]).toContain(json.decode(text).kind);
      }),
      { numRuns: 2_000 },
    );
  });

  it.each([
    ["a length far past the end", "0affffffff0f"],
    ["a length of 2^64", "0affffffffffffffffff01"],
    ["a tag that never ends", "ff".repeat(40)],
    ["a zero tag and more", "000000"],
    ["a zero tag after a frame and more", "12020801000000"],
    ["an end-group tag and more", "0c0c"],
    ["a group that is not closed", "f301"],
    ["a wrong wire type of a known field", "0801ff"],
    ["text that is not UTF-8", "2a04220280ff"],
  ])("calls %s malformed", (_, bytes) => {
    expect(binary.decode(hex(bytes)).kind).toBe("malformed");
  });

  it("survives half a million nested groups and lists", () => {
    expect(binary.decode(new Uint8Array(FRAME_BYTES_MAX).fill(0xf3 & 0x7b)).kind).toBe("malformed");
    expect(binary.decode(new Uint8Array(FRAME_BYTES_MAX).fill(0x0b)).kind).toBe("malformed");
    const lists = `{"other":${"[".repeat(500_000)}${"]".repeat(500_000)}}`;
    expect(json.decode(lists).kind).toBe("frame");
    expect(json.decode("[".repeat(1_000_000)).kind).toBe("malformed");
    expect(json.decode(`{"hello":${'{"instanceState":'.repeat(50_000)}1${"}".repeat(50_000)}}`).kind).toBe("frame");
  });

  it("gives a frame of an unknown kind as one without a kind, and skips unknown fields, in both encodings", () => {
    // field 99, a message; then claim with field 99
    expect(binary.decode(hex("9a0602080a"))).toEqual({ kind: "frame", bytes: 5, frame: { frame: undefined } });
    expect(binary.decode(hex("120508079a0600"))).toMatchObject({ frame: { frame: { $case: "claim", value: { slots: 7 } } } });
    expect(json.decode('{"brandNew":{"a":[1]}}')).toMatchObject({ kind: "frame", frame: { frame: undefined } });
    expect(json.decode('{"claim":{"slots":7,"brandNew":1}}')).toMatchObject({ frame: { frame: { $case: "claim", value: { slots: 7 } } } });
    expect(json.decode('{"instanceState":{"visibility":"VISIBILITY_SIDEWAYS"}}')).toMatchObject({
      frame: { frame: { value: { visibility: 0 } } },
    });
  });

  it("reads both name styles, numbers as numbers or strings, enums by name or number, null as absent", () => {
    const full = json.decode('{"started":{"callId":"c","fence":"12","atUnixMs":"1796040000123"}}');
    expect(json.decode('{"started":{"call_id":"c","fence":12,"at_unix_ms":1.796040000123e12,"grantId":null}}')).toMatchObject({
      frame: full.kind === "frame" ? full.frame : "none",
    });
    expect(json.decode('{"instance_state":{"visibility":2}}')).toMatchObject({ frame: { frame: { value: { visibility: 2 } } } });
    expect(json.decode('{"claim":null}')).toMatchObject({ kind: "frame", frame: { frame: undefined } });
  });

  it.each([
    ["no object", "[]", "the frame must be an object"],
    ["text", '"claim"', "the frame must be an object"],
    ["no JSON", "{secret", "the text is not JSON"],
    ["nothing", "", "the text is not JSON"],
    ["two kinds at once", '{"claim":{},"pong":{}}', "/pong must be the only one of frame"],
    ["one field twice", '{"started":{"callId":"a","call_id":"b"}}', "/started/call_id must be given once, not as callId and call_id"],
    ["a number for a string", '{"started":{"callId":1}}', "/started/callId must be a string"],
    ["a string for a boolean", '{"instanceState":{"focused":"true"}}', "/instanceState/focused must be true or false"],
    ["a fraction", '{"claim":{"slots":1.5}}', "/claim/slots must be an integer from 0 to 4294967295"],
    ["a negative count", '{"claim":{"slots":-1}}', "/claim/slots must be an integer from 0 to 4294967295"],
    ["a hexadecimal number", '{"claim":{"slots":"0x1"}}', "/claim/slots must be an integer from 0 to 4294967295"],
    ["a number with leading zeros", '{"claim":{"slots":"01"}}', "/claim/slots must be an integer from 0 to 4294967295"],
    ["words for a number", '{"claim":{"slots":"many"}}', "/claim/slots must be an integer from 0 to 4294967295"],
    ["a list for one", '{"claim":{"slots":[1]}}', "/claim/slots must be an integer from 0 to 4294967295"],
    ["one for a list", '{"pong":{"held":{}}}', "/pong/held must be an array"],
    ["null in a list", '{"pong":{"held":[null]}}', "/pong/held/0 must be an object"],
    ["a number out of range", '{"progress":{"percentage":1e999}}', "/progress/percentage must be a number"],
    ["a map with numbers", '{"instanceState":{"labels":{"a":1}}}', "/instanceState/labels/a must be a string"],
    ["half a character", '{"progress":{"text":"\\ud800"}}', "/progress/text must be text without lone surrogates"],
  ])("says where JSON with %s is malformed, without quoting it", (_, text, message) => {
    expect(messageOf(json.decode(text))).toBe(message);
  });

  it("calls an integer past 2^53 malformed rather than rounding it", () => {
    expect(json.decode('{"started":{"fence":"9007199254740992"}}').kind).toBe("malformed");
    // started { fence: 2^53 }
    expect(binary.decode(hex("2209188080808080808010")).kind).toBe("malformed");
    expect(binary.decode(hex("220918ffffffffffffff0f"))).toMatchObject({ frame: { frame: { value: { fence: Number.MAX_SAFE_INTEGER } } } });
  });

  it("wants bytes in binary and text in JSON", () => {
    expect(messageOf(binary.decode("{}"))).toContain("text message on the binary subprotocol");
    expect(messageOf(json.decode(new Uint8Array(0)))).toContain("binary message on the JSON subprotocol");
    expect(binary.decode(new ArrayBuffer(0))).toEqual({ kind: "frame", bytes: 0, frame: { frame: undefined } });
  });

  it("keeps a byte order mark and other odd text exactly", () => {
    const odd = "\ufeff\u0000\u2028é😀";
    for (const codec of [binary, json]) {
      expect(codec.decode(codec.encode(progress(odd)))).toMatchObject({ frame: { frame: { value: { text: odd } } } });
    }
  });

  it("sends half a character as U+FFFD in both encodings", () => {
    for (const codec of [binary, json]) {
      expect(codec.decode(codec.encode(progress("a\ud800b")))).toMatchObject({ frame: { frame: { value: { text: "a\ufffdb" } } } });
    }
  });

  it("pollutes no prototype by a label called __proto__", () => {
    const decoded = json.decode('{"instanceState":{"labels":{"__proto__":"x","a":"b"}}}');
    expect(decoded).toMatchObject({ frame: { frame: { value: { labels: { a: "b" } } } } });
    expect(Object.getPrototypeOf({})).toBe(Object.prototype);
    expect(({} as Record<string, unknown>).x).toBeUndefined();
  });

  it("measures the limit in bytes, not in characters, at its edge (R9)", () => {
    const overheadBinary = binary.encode(progress("x".repeat(1_000_000))).length - 1_000_000;
    const overheadJson = json.encode(progress("")).length + '"text":""'.length;
    const fitting = (room: number): string => "é".repeat(Math.floor(room / 2)) + "x".repeat(room % 2);
    for (const [codec, overhead] of [
      [binary, overheadBinary],
      [json, overheadJson],
    ] as const) {
      const room = FRAME_BYTES_MAX - overhead;
      const largest = codec.encode(progress(fitting(room)));
      expect(codec.decode(largest).kind).toBe("frame");
      expect(() => codec.encode(progress(fitting(room + 1)))).toThrow(FrameTooLargeError);
    }
    expect(binary.decode(new Uint8Array(FRAME_BYTES_MAX + 1))).toEqual({ kind: "too_large", bytes: FRAME_BYTES_MAX + 1 });
    expect(json.decode(" ".repeat(FRAME_BYTES_MAX + 1))).toEqual({ kind: "too_large", bytes: FRAME_BYTES_MAX + 1 });
    expect(json.decode("é".repeat(FRAME_BYTES_MAX / 2 + 1))).toEqual({ kind: "too_large", bytes: FRAME_BYTES_MAX + 2 });
  });

  it("names the frame, the bytes and the limit of what is too large", () => {
    expect(() => binary.encode(progress("x".repeat(2_000_000)))).toThrow(
      "frame progress is 2000008 bytes, over the limit of 1048576 bytes for a frame",
    );
  });

  it.each([binary, json])("refuses numbers that the field cannot hold: a mistake of the program", (codec) => {
    for (const slots of [1.5, -1, Number.NaN, 2 ** 32]) {
      expect(() => codec.encode({ frame: { $case: "claim", value: { slots } } })).toThrow(FrameEncodeError);
    }
    const started = { callId: "", grantId: "", fence: 0.5, atUnixMs: 0 };
    expect(() => codec.encode({ frame: { $case: "started", value: started } })).toThrow(/frame started cannot be encoded/);
  });

  it("knows its subprotocols", () => {
    expect(encodingOfSubprotocol("toolrunner.v1.proto")).toBe("binary");
    expect(encodingOfSubprotocol("toolrunner.v1.json")).toBe("json");
    expect(encodingOfSubprotocol("toolrunner.v2.json")).toBeUndefined();
  });
});
