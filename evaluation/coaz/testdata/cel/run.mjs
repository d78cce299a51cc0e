// Reads lines of {"engine", "expression", "params"} and writes a line of {"value"} or {"error"} for each. Values are
// written with their types, because JSON has one type of number and CEL three.
import { createInterface } from "node:readline";
import { run, isCelError, isCelList, isCelMap, isCelUint } from "@bufbuild/cel";
import { Environment } from "@marcbachmann/cel-js";

const plain = (v, object) => {
  switch (v.type) {
    case "int": return BigInt(v.value);
    case "double": return Number(v.value);
    case "list": return v.value.map((e) => plain(e, object));
    case "map": return object(v.value.map(([name, e]) => [name, plain(e, object)]));
    default: return v.value;
  }
};

const typed = (v) => {
  if (v === null) return { type: "null" };
  if (typeof v === "bigint") return { type: "int", value: String(v) };
  if (typeof v === "number") return { type: "double", value: String(v) };
  if (typeof v === "string") return { type: "string", value: v };
  if (typeof v === "boolean") return { type: "bool", value: v };
  if (isCelUint(v)) return { type: "int", value: String(v.value) };
  if (v.constructor?.name === "UnsignedInt") return { type: "int", value: String(v.valueOf()) };
  if (v.constructor?.name === "Optional") return v.hasValue() ? typed(v.value()) : { type: "absent" };
  if (Array.isArray(v)) return { type: "list", value: v.map(typed) };
  if (isCelList(v)) return { type: "list", value: [...v].map(typed) };
  if (isCelMap(v)) return { type: "map", value: [...v.entries()].map(([k, e]) => [String(k), typed(e)]) };
  if (v instanceof Map) return { type: "map", value: [...v].map(([k, e]) => [String(k), typed(e)]) };
  if (Object.getPrototypeOf(v) === Object.prototype || Object.getPrototypeOf(v) === null) {
    return { type: "map", value: Object.entries(v).map(([k, e]) => [k, typed(e)]) };
  }
  throw new Error("a value of another type");
};

const optional = new Environment({ enableOptionalTypes: true, unlistedVariablesAreDyn: true, homogeneousAggregateLiterals: false });

const engines = {
  bufbuild: (expression, params) => {
    const v = run(expression, { params: plain(params, (entries) => new Map(entries)) });
    if (isCelError(v)) throw v;
    return v;
  },
  "cel-js": (expression, params) => optional.evaluate(expression, { params: plain(params, Object.fromEntries) }),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { engine, expression, params } = JSON.parse(line);
  let answer;
  try {
    answer = { value: typed(engines[engine](expression, params)) };
  } catch (e) {
    answer = { error: String(e?.message ?? e).split("\n")[0] };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
