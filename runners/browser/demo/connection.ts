/** How the page reaches its broker. In production the product's own backend answers this, for the user who is signed in. */
export interface Connection {
  readonly ws: string;
  readonly runner_token: string;
}

export async function readConnection(): Promise<Connection> {
  const answer = await fetch("/toolrunner.json");
  const body: Connection & { readonly error?: string } = await answer.json();
  if (!answer.ok) throw new Error(body.error ?? `the server answered ${answer.status}`);
  return body;
}

/** Who uses the page. A product knows that from its session; here the address says it. */
export function subjectOf(address: string): string {
  return new URL(address).searchParams.get("subject") ?? "user_1";
}
