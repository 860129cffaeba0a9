const SHOWN_CHARACTERS_MAX = 40;
const RENDERED_CHARACTERS_MAX = 80;

/** What was there, for people: type and size, and the value itself where it is short. At most 80 characters. */
export function renderActual(value: unknown): string {
  switch (typeof value) {
    case "undefined":
      return "nothing";
    case "string":
      return renderString(value);
    case "number":
      return `number ${value}`;
    case "boolean":
      return `boolean ${value}`;
    case "object":
      if (value === null) return "null";
      if (Array.isArray(value)) return count("array of", value.length, "item");
      return count("object with", Object.keys(value).length, "property", "properties");
    default:
      return typeof value;
  }
}

function renderString(value: string): string {
  const shown = JSON.stringify(value);
  if (value.length <= SHOWN_CHARACTERS_MAX && shown.length <= RENDERED_CHARACTERS_MAX - 7) return `string ${shown}`;
  return count("string of", characters(value), "character");
}

/** Unicode characters, as JSON Schema counts lengths. */
function characters(value: string): number {
  let length = 0;
  for (let index = 0; index < value.length; index += 1) {
    const unit = value.charCodeAt(index);
    const next = value.charCodeAt(index + 1);
    if (unit >= 0xd800 && unit <= 0xdbff && next >= 0xdc00 && next <= 0xdfff) index += 1;
    length += 1;
  }
  return length;
}

function count(lead: string, amount: number, singular: string, plural = `${singular}s`): string {
  return `${lead} ${amount} ${amount === 1 ? singular : plural}`;
}
