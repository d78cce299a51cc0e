// Runs a bundle in a context of an edge runtime: a call a line comes in, an outcome goes out.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { EdgeVM } from "@edge-runtime/vm";

const vm = new EdgeVM();
for (const name of ["process", "Buffer", "require"]) {
	if (vm.evaluate(`typeof ${name}`) !== "undefined") throw new Error(`an edge runtime has no ${name}`);
}
vm.evaluate(readFileSync(process.argv[2], "utf8"));
const answer = vm.evaluate("answer");
for await (const line of createInterface({ input: process.stdin })) process.stdout.write(`${await answer(line)}\n`);
