import { describe, expect, it } from "vitest";
import { compareVersions } from "./connection-watch.js";

describe("versions of nats-server", () => {
  it("are compared by number, not by letter", () => {
    const rising = ["2.9.9", "2.9.10", "2.10.0", "2.10.7", "2.10.27", "2.11.0", "3.0.0"];
    for (const [index, version] of rising.entries()) {
      expect(compareVersions(version, version)).toBe(0);
      for (const older of rising.slice(0, index)) {
        expect(compareVersions(version, older), `${version} and ${older}`).toBeGreaterThan(0);
        expect(compareVersions(older, version), `${older} and ${version}`).toBeLessThan(0);
      }
    }
  });

  it("with a letter in front or a pre-release behind count as their release", () => {
    expect(compareVersions("v2.10.27", "2.10.27")).toBe(0);
    expect(compareVersions("2.10.27-beta.1", "2.10.27")).toBe(0);
  });

  it("that cannot be read are older than any", () => {
    for (const text of ["", "unknown", "2.10"]) expect(compareVersions(text, "0.0.1")).toBeLessThan(0);
  });
});
