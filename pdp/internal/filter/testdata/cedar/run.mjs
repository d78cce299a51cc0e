// Reads lines of {"schema", "policies", "entities", "questions"}, and writes for each a line of what Rust Cedar decides about each
// question: {"decision", "reasons", "errors"}, or {"misfit"} where the question does not fit the schema. The schema is given what the
// service adds to each context.
import { createInterface } from "node:readline";
import * as cedar from "@cedar-policy/cedar-wasm/nodejs";

const string = { type: "String" }, bool = { type: "Boolean" };
const record = (attributes) => ({ type: "Record", attributes });
const who = record({ type: string, id: string });
const pdp = record({
  now: { type: "EntityOrCommon", name: "datetime" }, tenant: string, caller: string, approved: bool, subject: who, resource: who,
  capability: record({ held: bool, id: string, depth: { type: "Long" } }),
});

const withContext = (text) => {
  const parsed = cedar.schemaToJson(text);
  if (parsed.type !== "success") throw new Error(JSON.stringify(parsed.errors));
  for (const namespace of Object.values(parsed.json)) {
    for (const action of Object.values(namespace.actions)) {
      if (!action.appliesTo) continue;
      const context = action.appliesTo.context ?? record({});
      if (context.type !== "Record") throw new Error("the context has a name");
      action.appliesTo.context = record({ ...context.attributes, pdp, action: record({}) });
    }
  }
  return parsed.json;
};

const judge = ({ schema, policies, entities, questions }) => {
  const whole = withContext(schema);
  const read = cedar.preparseSchema("s", whole);
  if (read.type !== "success") throw new Error(JSON.stringify(read.errors));
  const set = cedar.preparsePolicySet("p", { staticPolicies: policies });
  if (set.type !== "success") throw new Error(JSON.stringify(set.errors));
  return questions.map(({ principal, action, resource, context, own }) => {
    const own_ids = new Set(own.map((e) => e.uid.type + "\u0000" + e.uid.id));
    const all = [...entities.filter((e) => !own_ids.has(e.uid.type + "\u0000" + e.uid.id)), ...own];
    const answer = cedar.statefulIsAuthorized({
      principal, action, resource, context, entities: all, preparsedSchemaName: "s", validateRequest: true, preparsedPolicySetId: "p",
    });
    if (answer.type !== "success") return { misfit: answer.errors.map((e) => e.message).join("; ") };
    const { decision, diagnostics } = answer.response;
    return { decision, reasons: diagnostics.reason, errors: diagnostics.errors.map((e) => e.policyId) };
  });
};

for await (const line of createInterface({ input: process.stdin })) {
  let answers;
  try {
    answers = { answers: judge(JSON.parse(line)) };
  } catch (e) {
    answers = { failure: String(e) };
  }
  process.stdout.write(JSON.stringify(answers) + "\n");
}
