/** Reads `/metrics` of a broker as Prometheus does. */
import { type ParsedMetrics, parseMetrics } from "@toolrunner/broker/testing";

/** What the broker at `url` shows to `key`. Throws when it answers anything but 200 in the text format. */
export async function scrape(url: string, key: string): Promise<ParsedMetrics> {
  const response = await fetch(`${url}/metrics`, {
    headers: { authorization: `Bearer ${key}`, accept: "text/plain;version=0.0.4;q=0.5,*/*;q=0.1" },
  });
  const text = await response.text();
  if (response.status !== 200 || response.headers.get("content-type") !== "text/plain; version=0.0.4; charset=utf-8") {
    throw new Error(`GET /metrics answered ${response.status}: ${text.slice(0, 500)}`);
  }
  return parseMetrics(text);
}
