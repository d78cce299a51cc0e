// Reads lines of {"schema", "policies", "entities"}, and writes for each a line of what Cedar's own tools say of them: what
// does not parse, what its strict validator objects to, and the policies as its formatter writes them. This is what its
// extension for VS Code and `cedar validate`, `cedar format` run.
import { createInterface } from "node:readline";
import * as cedar from "@cedar-policy/cedar-wasm/nodejs";

const said = (errors) => errors.map((e) => e.message + (e.help ? " (" + e.help + ")" : ""));

const judge = ({ schema, policies, entities }) => {
  const faults = [], formatted = {};
  const note = (file, answer) => answer.type === "success" || faults.push(file + ": " + said(answer.errors));
  if (schema) note("the schema", cedar.checkParseSchema(schema));
  for (const [file, text] of Object.entries(policies)) {
    const set = { staticPolicies: text };
    const written = cedar.formatPolicies({ policyText: text, lineWidth: 80, indentWidth: 2 });
    note(file, written);
    formatted[file] = written.formatted_policy ?? "";
    note(file, cedar.checkParsePolicySet(set));
    if (!schema) continue;
    const valid = cedar.validate({ schema, policies: set, validationSettings: { mode: "strict" } });
    note(file, valid);
    for (const e of [...(valid.validationErrors ?? []), ...(valid.validationWarnings ?? [])])
      faults.push(file + ": " + e.policyId + ": " + said([e.error]));
  }
  for (const [file, list] of Object.entries(entities))
    note(file, cedar.checkParseEntities({ entities: list, schema: schema || null }));
  return { version: cedar.getCedarVersion(), faults, formatted };
};

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(JSON.stringify(judge(JSON.parse(line))) + "\n");
}
