import { chmod, mkdir, mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { CliError } from "../errors.js";
import { isLoopback, parseAgentAddress, parseRunnerAddress } from "./address.js";
import { resolveAgent, resolveAgentWithKey, resolveRunner } from "./connection.js";
import { DATA_FOLDER, devFilePath, readDevFile, writeDevFile } from "./dev-file.js";
import { bindingOfFile, checkedId } from "./ids.js";

const DEV = {
  http: "http://127.0.0.1:9001",
  ws: "ws://127.0.0.1:9001/v1/runner",
  grpc: null,
  agent_key: "dev-agent",
  runner_token: "dev-runner",
  pid: 1,
};

let cwd: string;
beforeEach(async () => {
  cwd = await mkdtemp(join(tmpdir(), "toolrunner-connect-"));
});
afterEach(() => rm(cwd, { recursive: true, force: true }));

const withDevFile = (): Promise<void> => writeDevFile(join(cwd, DATA_FOLDER), DEV);

describe("an agent's broker and key", () => {
  it("come from the option, then the environment, then dev.json, then the default", async () => {
    expect(await resolveAgent({}, { cwd, env: {} })).toEqual({ url: "http://127.0.0.1:7070", key: undefined });
    await withDevFile();
    expect(await resolveAgent({}, { cwd, env: {} })).toEqual({ url: DEV.http, key: "dev-agent" });
    const env = { TOOLRUNNER_URL: "http://127.0.0.1:9002", TOOLRUNNER_KEY: "env-key" };
    expect(await resolveAgent({}, { cwd, env })).toEqual({ url: "http://127.0.0.1:9002", key: "env-key" });
    expect(await resolveAgent({ url: "https://127.0.0.1:9003/", key: "option-key" }, { cwd, env })).toEqual({
      url: "https://127.0.0.1:9003",
      key: "option-key",
    });
  });

  it("take an empty variable for one that is not set", async () => {
    await withDevFile();
    expect(await resolveAgent({}, { cwd, env: { TOOLRUNNER_URL: "", TOOLRUNNER_KEY: "" } })).toEqual({ url: DEV.http, key: "dev-agent" });
  });

  it("never send a development key to another machine", async () => {
    await withDevFile();
    expect(await resolveAgent({ url: "https://broker.example" }, { cwd, env: {} })).toEqual({
      url: "https://broker.example",
      key: undefined,
    });
    await expect(resolveAgentWithKey({ url: "https://broker.example" }, { cwd, env: {} })).rejects.toMatchObject({
      code: "key_missing",
      exitCode: 4,
    });
  });
});

describe("a runner's broker and token", () => {
  it("come from the option, then the environment, then dev.json", async () => {
    await withDevFile();
    expect(await resolveRunner({}, { cwd, env: {} })).toEqual({ address: { transport: "websocket", url: DEV.ws }, token: "dev-runner" });
    const env = { TOOLRUNNER_RUNNER_URL: "grpc://127.0.0.1:9004", TOOLRUNNER_RUNNER_TOKEN: "env-token" };
    expect(await resolveRunner({}, { cwd, env })).toEqual({
      address: { transport: "grpc", url: "grpc://127.0.0.1:9004" },
      token: "env-token",
    });
    expect(await resolveRunner({ url: "http://127.0.0.1:9005", token: "t" }, { cwd, env })).toEqual({
      address: { transport: "websocket", url: "ws://127.0.0.1:9005/v1/runner" },
      token: "t",
    });
  });

  it("never fall back to the agent's address or key", async () => {
    const env = { TOOLRUNNER_URL: "http://127.0.0.1:9006", TOOLRUNNER_KEY: "agent" };
    await expect(resolveRunner({}, { cwd, env })).rejects.toMatchObject({ code: "token_missing", exitCode: 4 });
    expect((await resolveRunner({ token: "t" }, { cwd, env })).address.url).toBe("ws://127.0.0.1:7070/v1/runner");
  });

  it("never send a development token to another machine", async () => {
    await withDevFile();
    await expect(resolveRunner({ url: "wss://broker.example/v1/runner" }, { cwd, env: {} })).rejects.toMatchObject({
      code: "token_missing",
    });
  });
});

describe("a runner key in a file", () => {
  const named = (tokenFile: string) => resolveRunner({ tokenFile }, { cwd, env: {} });

  it("counts after --token and before the environment, whose variable names one too", async () => {
    await writeFile(join(cwd, "key"), "from-file\n");
    const env = { TOOLRUNNER_RUNNER_TOKEN: "env-token" };
    const { token } = await resolveRunner({ tokenFile: "key" }, { cwd, env });
    expect(typeof token === "function" && (await token())).toBe("from-file");
    expect((await resolveRunner({ token: "t" }, { cwd, env: { TOOLRUNNER_RUNNER_TOKEN_FILE: "key" } })).token).toBe("t");
    const byVariable = await resolveRunner({}, { cwd, env: { TOOLRUNNER_RUNNER_TOKEN_FILE: join(cwd, "key") } });
    expect(typeof byVariable.token === "function" && (await byVariable.token())).toBe("from-file");
  });

  it("is read again each time, so that a new key needs no restart", async () => {
    await writeFile(join(cwd, "key"), "first");
    const { token } = await named("key");
    if (typeof token !== "function") throw new Error("a file gives a function");
    await writeFile(join(cwd, "key"), "\ufeffsecond\r\n");
    expect(await token()).toBe("second");
    await rm(join(cwd, "key"));
    await expect(token()).rejects.toMatchObject({ code: "token_file_invalid" });
  });

  it.each([
    ["is not there", undefined],
    ["is empty", " \n"],
    ["holds two lines", "trr_a_secret\ntrr_b_secret"],
    ["holds what no key has", "trr_a_s\u00e9cret"],
    ["is large", "trr_secret".repeat(1_000)],
  ])("that %s keeps the runner from starting: exit code 1, the place, and nothing of what it holds", async (_what, content) => {
    if (content !== undefined) await writeFile(join(cwd, "key"), content);
    const refused = await named("key").catch((cause: unknown) => cause);
    expect(refused).toMatchObject({ code: "token_file_invalid", exitCode: 1, message: expect.stringContaining(join(cwd, "key")) });
    expect(refused).toMatchObject({ message: expect.not.stringContaining("secret") });
    await expect(named(".")).rejects.toMatchObject({ code: "token_file_invalid", message: expect.stringContaining("--token-file") });
  });

  it("beside a key of the same place is wrong usage", async () => {
    await expect(resolveRunner({ token: "t", tokenFile: "key" }, { cwd, env: {} })).rejects.toMatchObject({ exitCode: 2 });
    const env = { TOOLRUNNER_RUNNER_TOKEN: "t", TOOLRUNNER_RUNNER_TOKEN_FILE: "key" };
    await expect(resolveRunner({}, { cwd, env })).rejects.toMatchObject({ exitCode: 2 });
  });

  it("that the environment names as nothing is not named", async () => {
    await expect(resolveRunner({}, { cwd, env: { TOOLRUNNER_RUNNER_TOKEN_FILE: "" } })).rejects.toMatchObject({ code: "token_missing" });
  });
});

describe("addresses", () => {
  it.each([
    ["ws://h:1", "websocket", "ws://h:1/v1/runner"],
    ["wss://h/", "websocket", "wss://h/v1/runner"],
    ["wss://h/own/path?a=b", "websocket", "wss://h/own/path?a=b"],
    ["http://h:80", "websocket", "ws://h/v1/runner"],
    ["https://h", "websocket", "wss://h/v1/runner"],
    ["grpc://h:7071", "grpc", "grpc://h:7071"],
    ["grpcs://[::1]:7071", "grpc", "grpcs://[::1]:7071"],
  ])("%s is %s at %s", (text, transport, url) => {
    expect(parseRunnerAddress(text, "--url")).toEqual({ transport, url });
  });

  it.each(["", "127.0.0.1:7070", "ftp://h", "grpc://h", "nats://h:4222", "ws://user:pass@h"])(
    "%j is refused as wrong usage that names the option",
    (text) => {
      expect(() => parseRunnerAddress(text, "--url")).toThrowError(
        expect.objectContaining({ exitCode: 2, message: expect.stringContaining("--url") }),
      );
    },
  );

  it("are not repeated when they hold a password", () => {
    expect(() => parseAgentAddress("http://me:hunter2@h", "TOOLRUNNER_URL")).toThrowError(
      expect.objectContaining({ message: expect.not.stringContaining("hunter2") }),
    );
  });

  it("of agents are http or https without a path", () => {
    expect(parseAgentAddress("http://h:1/", "--url")).toBe("http://h:1");
    for (const text of ["ws://h", "http://h/v1", "http://h?x=1"]) expect(() => parseAgentAddress(text, "--url")).toThrowError(CliError);
  });

  it("are loopback only when no other machine reaches them", () => {
    expect(["127.0.0.1", "127.9.9.9", "localhost", "LOCALHOST", "::1", "[::1]"].every(isLoopback)).toBe(true);
    expect(["0.0.0.0", "::", "10.0.0.1", "127.0.0.1.example", "localhost.example", "example"].some(isLoopback)).toBe(false);
  });
});

describe("dev.json", () => {
  it("is readable by its owner only, also when an older one was open to others", async () => {
    const folder = join(cwd, DATA_FOLDER);
    await mkdir(folder);
    await writeFile(devFilePath(folder), "{}");
    await chmod(devFilePath(folder), 0o644);
    await writeDevFile(folder, DEV);
    expect((await stat(devFilePath(folder))).mode & 0o777).toBe(0o600);
    expect(await readDevFile(folder)).toEqual(DEV);
  });

  it.each(["", "{", "null", "[]", '{"http":1}', JSON.stringify({ ...DEV, agent_key: "" })])(
    "counts as absent when it holds %j",
    async (content) => {
      const folder = join(cwd, DATA_FOLDER);
      await mkdir(folder);
      await writeFile(devFilePath(folder), content);
      expect(await readDevFile(folder)).toBeUndefined();
    },
  );

  it("that cannot be written is a start-up fault that names --data", async () => {
    await writeFile(join(cwd, "file"), "");
    await expect(writeDevFile(join(cwd, "file"), DEV)).rejects.toMatchObject({
      code: "data_unwritable",
      exitCode: 1,
      message: expect.stringContaining("--data"),
    });
  });
});

describe("a binding named after a file", () => {
  it.each([
    ["shop.ts", "shop"],
    ["./a/b/Shop Tools.mts", "shop-tools"],
    ["order_desk.prod.js", "order_desk-prod"],
    ["2nd-shop.ts", "nd-shop"],
    ["Größe.ts", "gr-e"],
    [`${"a".repeat(100)}.ts`, "a".repeat(64)],
    ["noextension", "noextension"],
    [".hidden", "hidden"],
  ])("%s is %s", (file, id) => {
    expect(bindingOfFile(file)).toBe(id);
  });

  it.each(["1.ts", "___.ts", "日本.ts", "-.js"])("%s gives none: the option is named", (file) => {
    expect(() => bindingOfFile(file)).toThrowError(expect.objectContaining({ exitCode: 2, message: expect.stringContaining("--binding") }));
  });

  it("that is given must be an id", () => {
    expect(checkedId("a_b-9", "--binding")).toBe("a_b-9");
    for (const id of ["", "A", "9a", "a.b", "a".repeat(65), "a\n"])
      expect(() => checkedId(id, "--binding")).toThrowError(expect.objectContaining({ exitCode: 2 }));
  });
});
