/** `toolrunner.v1.Catalog` and `toolrunner.v1.Diagnostics`. */

import type { CatalogHandlers, DiagnosticsHandlers } from "@toolrunner/proto/services";
import { type RpcParts, unary } from "./agent-rpc.js";
import { bindingMessage, needed, putToolsetBody, runnerMessage, toolsetMessage } from "./messages.js";

/** Makes the handlers of the catalog. */
export function catalogHandlers(parts: RpcParts): CatalogHandlers {
  const { api } = parts;
  return {
    putBinding: unary(parts, "PutBinding", async (principal, { id, name, kind, limits }) => {
      const body = { name: needed(name), kind: needed(kind), limits };
      return bindingMessage((await api.putBinding(principal, id, body)).binding);
    }),
    getBinding: unary(parts, "GetBinding", async (principal, { id }) => bindingMessage(await api.getBinding(principal, id))),
    listBindings: unary(parts, "ListBindings", async (principal, request) => {
      const page = await api.listBindings(principal, { ...request });
      return { data: page.data.map(bindingMessage), nextPage: page.next_page ?? undefined };
    }),
    putToolset: unary(parts, "PutToolset", async (principal, request) =>
      toolsetMessage((await api.putToolset(principal, request.id, putToolsetBody(request))).toolset),
    ),
    getToolset: unary(parts, "GetToolset", async (principal, { id, version }) =>
      toolsetMessage(await api.getToolset(principal, id, version)),
    ),
    listToolsets: unary(parts, "ListToolsets", async (principal, request) => {
      const page = await api.listToolsets(principal, { ...request });
      return { data: page.data.map(toolsetMessage), nextPage: page.next_page ?? undefined };
    }),
    listToolsetVersions: unary(parts, "ListToolsetVersions", async (principal, { id, ...request }) => {
      const page = await api.listToolsetVersions(principal, id, request);
      return { data: page.data.map(toolsetMessage), nextPage: page.next_page ?? undefined };
    }),
  };
}

/** Makes the handlers of diagnostics. */
export function diagnosticsHandlers(parts: RpcParts): DiagnosticsHandlers {
  return {
    listRunners: unary(parts, "ListRunners", async (principal, request) => {
      const page = await parts.api.listRunners(principal, { ...request });
      return { data: page.data.map(runnerMessage), nextPage: page.next_page ?? undefined };
    }),
  };
}
