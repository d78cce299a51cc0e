// Reads lines of policies, and writes for each a line of how Cedar's own formatter lays them out.
import { createInterface } from "node:readline";
import * as cedar from "@cedar-policy/cedar-wasm/nodejs";

for await (const line of createInterface({ input: process.stdin })) {
  const laid = cedar.formatPolicies({ policyText: JSON.parse(line), lineWidth: 80, indentWidth: 2 });
  const answer = laid.type === "success" ? { text: laid.formatted_policy } : { failure: laid.errors.map((e) => e.message).join("; ") };
  process.stdout.write(JSON.stringify(answer) + "\n");
}
