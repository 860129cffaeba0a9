/**
 * The history of a settled call under another name: what a broker would have stored for a call like it.
 *
 * Invariant: whatever in the entries names the call, its grant or its fence is the copy's own; everything else is as it was
 * stored, to the letter.
 */

/** An entry of the call that is copied. */
export interface TemplateEntry {
  readonly version: number;
  readonly entryId: string;
  readonly data: string;
}

/** One copy of a call's entries, made one after the other: a fence is the version that an earlier entry got. */
export class SettledCopy {
  private readonly versions = new Map<number, number>();
  private readonly names: (readonly [string, string])[];

  /** `entryIds`: one for each entry of the template. */
  constructor(
    private readonly template: readonly TemplateEntry[],
    templateCallId: string,
    callId: string,
    private readonly entryIds: readonly string[],
  ) {
    if (entryIds.length !== template.length) throw new RangeError(`${template.length} entries need as many ids, not ${entryIds.length}`);
    this.names = [[templateCallId, callId], ...template.map(({ entryId }, index) => [entryId, entryIds[index] as string] as const)];
  }

  /** The entry at `index`; all before it must have been {@link stored}. */
  entry(index: number): { readonly entryId: string; readonly data: string } {
    const { data } = this.template[index] as TemplateEntry;
    let copied = data;
    for (const [from, to] of this.names) copied = copied.replaceAll(`"${from}"`, `"${to}"`);
    for (const [from, to] of this.versions) copied = copied.replaceAll(`"fence":${from},`, `"fence":${to},`);
    return { entryId: this.entryIds[index] as string, data: copied };
  }

  /** The ledger gave the entry at `index` this version. */
  stored(index: number, version: number): void {
    this.versions.set((this.template[index] as TemplateEntry).version, version);
  }
}
