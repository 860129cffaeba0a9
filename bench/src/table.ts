/** Tables of text. */

export type Row = readonly string[];

/** Columns as wide as their widest cell, the first `leftColumns` aligned to the left. An empty row becomes a rule. */
export function renderTable(head: Row, rows: readonly Row[], leftColumns: number): string {
  const widths = head.map((title, column) => Math.max(title.length, ...rows.map((row) => (row[column] ?? "").length)));
  const line = (row: Row): string =>
    widths
      .map((width, column) => (column < leftColumns ? (row[column] ?? "").padEnd(width) : (row[column] ?? "").padStart(width)))
      .join("  ")
      .trimEnd();
  const rule = widths.map((width) => "─".repeat(width)).join("──");
  return [line(head), rule, ...rows.map((row) => (row.length === 0 ? rule : line(row)))].join("\n");
}

/** Three digits that count, no exponent: `0.0421`, `1.23`, `45.6`, `7,890`. */
export function figure(value: number): string {
  if (!Number.isFinite(value)) return "–";
  if (value >= 100) return Math.round(value).toLocaleString("en-US");
  if (value >= 10) return value.toFixed(1);
  if (value >= 1 || value === 0) return value.toFixed(2);
  return value.toFixed(Math.min(8, 2 - Math.floor(Math.log10(value))));
}
