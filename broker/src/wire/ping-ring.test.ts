import { describe, expect, it } from "vitest";
import { manualClock } from "./manual-clock.test.kit.js";
import { PingRing } from "./ping-ring.js";
import { createTimerWheel } from "./timer-wheel.js";

const INTERVAL_MS = 1_000;

function ringOf(intervalMs = INTERVAL_MS) {
  const clock = manualClock();
  const timers = createTimerWheel(clock, (error) => {
    throw error;
  });
  const beats: { readonly member: number; readonly atMs: number }[] = [];
  const ring = new PingRing<number>({ timers, clock, intervalMs }, (member) => void beats.push({ member, atMs: clock.monotonic() }));
  const inOneTurn = (): number => {
    const counts = new Map<number, number>();
    for (const { atMs } of beats) {
      counts.set(atMs, (counts.get(atMs) ?? 0) + 1);
    }
    return Math.max(0, ...counts.values());
  };
  return { clock, ring, beats, inOneTurn };
}

describe("the ring of pings", () => {
  it("pings each session once in an interval", () => {
    const { clock, ring, beats } = ringOf();
    for (let member = 0; member < 300; member += 1) {
      ring.add(member);
    }
    clock.advance(10 * INTERVAL_MS + 100);
    for (let member = 0; member < 300; member += 1) {
      const times = beats.filter((beat) => beat.member === member).map(({ atMs }) => atMs);
      expect(times.length).toBeGreaterThanOrEqual(10);
      expect(times.length).toBeLessThanOrEqual(11);
      for (const [index, atMs] of times.slice(1).entries()) {
        expect(Math.abs(atMs - (times[index] as number) - INTERVAL_MS)).toBeLessThanOrEqual(60);
      }
    }
  });

  it("spreads a thousand that came in one turn over the interval", () => {
    const { clock, ring, inOneTurn, beats } = ringOf();
    for (let member = 0; member < 1_000; member += 1) {
      ring.add(member);
    }
    clock.advance(2 * INTERVAL_MS);
    expect(beats.length).toBeGreaterThanOrEqual(1_900);
    // 50 slots, of which a turn that is a little late goes through three.
    expect(inOneTurn()).toBeLessThanOrEqual(3 * 22);
  });

  it("keeps them spread after the loop stood still, and makes up for it in steps", () => {
    const { clock, ring, inOneTurn, beats } = ringOf();
    for (let member = 0; member < 1_000; member += 1) {
      ring.add(member);
    }
    clock.advance(INTERVAL_MS);
    beats.splice(0);
    clock.jump(800);
    expect(beats.length).toBeLessThanOrEqual(300);
    clock.advance(200);
    expect(beats.length).toBeGreaterThanOrEqual(900);
    beats.splice(0);
    clock.advance(5 * INTERVAL_MS);
    expect(beats.length).toBeGreaterThanOrEqual(4_900);
    expect(inOneTurn()).toBeLessThanOrEqual(3 * 22);
  });

  it("goes round in one interval, or little more, where every turn is late", () => {
    const { clock, ring, beats } = ringOf();
    for (let member = 0; member < 100; member += 1) {
      ring.add(member);
    }
    for (let turn = 0; turn < 50; turn += 1) {
      clock.jump(200);
    }
    expect(beats.length).toBeGreaterThanOrEqual(850);
    expect(beats.length).toBeLessThanOrEqual(1_000);
  });

  it("pings nobody twice for a stall of many intervals", () => {
    const { clock, ring, beats } = ringOf();
    ring.add(1);
    clock.advance(10);
    clock.jump(900);
    clock.jump(900);
    clock.jump(900);
    expect(beats.length).toBeLessThanOrEqual(3);
  });

  it("forgets who was removed, also during a beat, and holds no timer when nobody is left", () => {
    const { clock, ring, beats } = ringOf();
    const slots = [1, 2].map((member) => ring.add(member));
    expect(ring.size).toBe(2);
    ring.remove(1, slots[0] as number);
    ring.remove(1, slots[0] as number);
    clock.advance(3 * INTERVAL_MS);
    expect(new Set(beats.map(({ member }) => member))).toEqual(new Set([2]));
    ring.remove(2, slots[1] as number);
    expect(ring.size).toBe(0);
    const count = beats.length;
    clock.advance(2 * INTERVAL_MS);
    expect(beats).toHaveLength(count);
    expect(clock.armed).toBe(0);
    ring.add(3);
    clock.advance(INTERVAL_MS + 60);
    expect(beats.at(-1)?.member).toBe(3);
  });

  it("works for an interval shorter than a slot", () => {
    const { clock, ring, beats } = ringOf(10);
    ring.add(1);
    clock.advance(200);
    expect(beats.length).toBeGreaterThanOrEqual(5);
  });
});
