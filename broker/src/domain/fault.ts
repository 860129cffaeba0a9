/** One thing that is wrong in an input. `path` is a JSON Pointer. */
export interface FaultDetail {
  readonly path: string;
  readonly expected: string;
  readonly actual: string;
}
