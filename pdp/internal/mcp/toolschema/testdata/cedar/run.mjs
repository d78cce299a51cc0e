// Reads lines of {"schema", "policies", "requests"}, and writes for each a line of what Rust Cedar says of them: if the schema
// parses, if the policies are valid by it, and what becomes of each request.
import { createInterface } from "node:readline";
import * as cedar from "@cedar-policy/cedar-wasm/nodejs";

const judge = ({ schema, policies, requests }) => {
  const read = cedar.preparseSchema("s", schema);
  if (read.type !== "success") return { failure: "schema: " + JSON.stringify(read.errors) };
  const set = { staticPolicies: policies };
  const valid = cedar.validate({ schema, policies: set });
  if (valid.type !== "success") return { failure: "policies: " + JSON.stringify(valid.errors) };
  if (valid.validationErrors.length > 0) return { invalid: valid.validationErrors.map((e) => e.policyId + ": " + e.error.message) };
  cedar.preparsePolicySet("p", set);
  return {
    answers: requests.map((context) => {
      const answer = cedar.statefulIsAuthorized({
        principal: { type: "agent", id: "a" }, action: { type: "Action", id: "s:t" }, resource: { type: "tool", id: "s:t" },
        context, entities: [], preparsedSchemaName: "s", validateRequest: true, preparsedPolicySetId: "p",
      });
      if (answer.type !== "success") return { failure: JSON.stringify(answer.errors) };
      const { decision, diagnostics } = answer.response;
      return { decision, reasons: diagnostics.reason, errors: diagnostics.errors.map((e) => e.policyId) };
    }),
  };
};

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(JSON.stringify(judge(JSON.parse(line))) + "\n");
}
