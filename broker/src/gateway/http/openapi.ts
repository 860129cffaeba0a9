/** `/openapi.json`: made from the same schemas that requests are checked with. */

import type { FastifyDynamicSwaggerOptions } from "@fastify/swagger";
import type { FastifySchema } from "fastify";
import { isRunnerOperation, OPERATION_SCOPES } from "../shared/scopes.js";
import type { Route } from "./routes.js";
import { ERROR } from "./view-schemas.js";

/** The document's head. */
export function openApiInfo(version: string): FastifyDynamicSwaggerOptions {
  return {
    openapi: {
      openapi: "3.1.0",
      info: { title: "ToolRunner", version, description: "Call tools, follow calls, keep the catalog." },
      components: {
        securitySchemes: { key: { type: "http", scheme: "bearer", description: "An agent key, or where it is said a runner key." } },
      },
      security: [{ key: [] }],
    },
  };
}

const PARAMETER_NAMES: Readonly<Record<string, string>> = {
  id: "Its id.",
  key_id: "The key's id.",
  version: "A version number.",
};

/** The schema of one route, for the framework and the document. */
export function routeSchema(route: Route): FastifySchema & { readonly [key: string]: unknown } {
  const names = [...route.path.matchAll(/\/:([a-z_]+)/g)].map((match) => match[1] ?? "");
  return {
    operationId: route.operation,
    summary: route.summary,
    description: neededFor(route),
    ...(names.length > 0
      ? {
          params: {
            type: "object",
            required: names,
            properties: Object.fromEntries(names.map((name) => [name, { type: "string", description: PARAMETER_NAMES[name] }])),
          },
        }
      : {}),
    ...(route.query !== undefined ? { querystring: route.query.schema } : {}),
    ...(route.body !== undefined ? { body: route.body.schema } : {}),
    response: { ...route.answers, "4xx": ERROR, "5xx": ERROR },
  };
}

function neededFor({ operation }: Route): string {
  if (isRunnerOperation(operation)) return "A runner key of the call's binding.";
  const scope = OPERATION_SCOPES[operation];
  return scope === undefined ? "Any agent key." : `Needs the scope ${scope}.`;
}
