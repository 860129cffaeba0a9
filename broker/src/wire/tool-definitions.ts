/** A tool definition as a runner sends it, in the fields of a toolset's tool. */
import type { ToolDefinition } from "@toolrunner/proto";

export function toolFields(binding: string): (tool: ToolDefinition) => unknown {
  return (tool) => ({
    name: tool.name,
    version: tool.version,
    description: tool.description,
    input_schema: schema(tool.inputSchemaJson),
    ...(tool.outputSchemaJson === "" ? {} : { output_schema: schema(tool.outputSchemaJson) }),
    binding,
    behaviour: tool.readOnly ? "read_only" : "write",
    idempotent: tool.idempotent,
    cancellable: tool.cancellable,
    ...(tool.timeoutSeconds === 0 ? {} : { timeout_seconds: tool.timeoutSeconds }),
    ...(tool.resultSemantics === "" ? {} : { result_semantics: tool.resultSemantics }),
    ...(tool.submissionTimeoutSeconds === 0 ? {} : { submission_timeout_seconds: tool.submissionTimeoutSeconds }),
    ...(tool.maxResultContextBytes === 0 ? {} : { max_result_context_bytes: tool.maxResultContextBytes }),
    ...(tool.confirmation === "" ? {} : { confirmation: tool.confirmation }),
    scopes: tool.scopes,
  });
}

/** What is no JSON stays a text: the catalog refuses it with the tool's path. */
function schema(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return json;
  }
}
