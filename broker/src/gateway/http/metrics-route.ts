/** `GET /metrics`: the broker's numbers in Prometheus' text format, whatever the caller says that it accepts. */
import type { FastifyInstance } from "fastify";
import type { AgentPrincipal } from "../../domain/ports/access.js";
import type { MetricsSource } from "../../domain/ports/meter.js";
import { readQuery } from "../shared/form.js";
import { NO_QUERY } from "../shared/forms.js";
import { OPERATION_SCOPES, type OperationName } from "../shared/scopes.js";
import { ERROR } from "./view-schemas.js";

const OPERATION: OperationName = "readMetrics";

/** Adds the route; its key and scope are checked like those of all routes with an operation. */
export function addMetricsRoute(scope: FastifyInstance, metrics: MetricsSource): void {
  const schema = {
    operationId: OPERATION,
    summary: "Metrics in Prometheus' text format",
    description: `Needs the scope ${OPERATION_SCOPES[OPERATION]}. Tools of other applications are counted as other.`,
    response: {
      200: { description: "One block for each metric.", content: { "text/plain": { schema: { type: "string" } } } },
      "4xx": ERROR,
      "5xx": ERROR,
    },
  };
  scope.get("/metrics", { config: { operation: OPERATION }, schema }, async (request, reply) => {
    NO_QUERY.check(readQuery(request.query as Readonly<Record<string, unknown>>, NO_QUERY.schema));
    const { application } = request.getDecorator<AgentPrincipal>("principal");
    const { contentType, text } = await metrics.read(application);
    return await reply.header("content-type", contentType).header("cache-control", "no-store").send(text);
  });
  scope.route({
    method: "OPTIONS",
    url: "/metrics",
    schema: { hide: true },
    handler: (_request, reply) => reply.code(204).header("allow", "GET, HEAD, OPTIONS").send(),
  });
}
