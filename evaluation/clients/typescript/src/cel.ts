// CEL as mappings are written in it. The peer dependency parses an expression and checks its types; it is evaluated here.
// A mapping is written by the very server of the calls that are decided, and evaluated on the values of its callers: so each step is
// counted, and an expression that policy-service's own CEL does not take is refused.
import { type ASTNode, Environment } from "@marcbachmann/cel-js";
import { isObject } from "./json.js";
import type { Json } from "./types.js";

/** Why there is no value, in words that quote none. */
export class CelError extends Error {}
/** The mapping costs too much. No && and || gets past it. */
class Spent extends CelError {}

/** The cost of all expressions of a mapping for one call: one for a step, and one for each ten characters that it goes through. */
export class Meter {
	#steps = 10_000;
	#written = 200_000;
	spend(units: number): void {
		this.#steps -= units;
		if (!(this.#steps >= 0)) throw new Spent("more than 10000 units of cost for all expressions");
	}
	/** A value that is only copied may be larger, and yet no larger than a request can be. */
	write(units: number): void {
		this.#written -= units;
		if (!(this.#written >= 0)) throw new Spent("the expressions yield more than fits a request");
	}
}

class Optional {
	constructor(readonly value?: Cel) {}
}
const none = new Optional();

type Cel = null | boolean | string | bigint | number | readonly Cel[] | ReadonlyMap<string, Cel> | Optional;
/** The values of the variables params and token. */
export type Variables = { readonly params: Cel; readonly token: Cel };
interface Scope {
	readonly name: string;
	readonly value: Cel;
	readonly up: Scope | undefined;
}

/** A value of {@link plainJson}, as CEL sees it: an integral number is an int, however it was written. */
export function celOf(v: Json | undefined): Cel {
	if (typeof v === "number") return Number.isInteger(v) ? BigInt(v) : v;
	if (Array.isArray(v)) return (v as Json[]).map(celOf);
	if (isObject(v)) return new Map(Object.entries(v).map(([name, member]) => [name, celOf(member)]));
	return (v as null | boolean | string | undefined) ?? null;
}

/** The JSON of a value. Values that JSON does not have are errors. */
function write(v: Cel, m: Meter): Json {
	m.write(typeof v === "string" ? 1 + v.length / 10 : 1);
	if (v === null || typeof v === "boolean") return v;
	if (typeof v === "string" && v.isWellFormed()) return v;
	if (typeof v === "number" && Number.isFinite(v) && (!Number.isInteger(v) || Number.isSafeInteger(v))) return v;
	if (typeof v === "bigint" && Number.isSafeInteger(Number(v))) return Number(v);
	if (isList(v)) return v.map((e) => write(e, m));
	if (v instanceof Map)
		return Object.assign(Object.create(null), Object.fromEntries([...v].map(([name, member]) => [name, write(member, m)])));
	throw new CelError("the expression yields what JSON does not have, or a number that JavaScript does not hold exactly");
}

const isList = (v: Cel): v is readonly Cel[] => Array.isArray(v);
const isMap = (v: Cel): v is ReadonlyMap<string, Cel> => v instanceof Map;
const isNumber = (v: Cel): v is bigint | number => typeof v === "bigint" || typeof v === "number";

const wrongType = () => new CelError("a value has a type that the operation does not take");
const missing = () => new CelError("a member that is read is missing");

const language = new Environment({
	enableOptionalTypes: true,
	homogeneousAggregateLiterals: false,
	limits: { maxAstNodes: 1000, maxDepth: 64, maxListElements: 256, maxMapEntries: 256, maxCallArguments: 8 },
})
	.registerVariable("params", "map<string, dyn>")
	.registerVariable("token", "map<string, dyn>");

/** A compiled expression. */
export interface Expression {
	/** The variable and the member that it reads, if it does nothing else. */
	readonly reads: { readonly root: string; readonly name: string } | undefined;
	evaluate(vars: Variables, meter: Meter): Json | undefined;
}

/** Compiles an expression. It throws a CelError. */
export function compile(source: string): Expression {
	let ast: ASTNode;
	try {
		const parsed = language.parse(source);
		ast = parsed.ast;
		inspect(ast, ["params", "token"], { macros: 0, literals: 0 });
		const checked = parsed.check();
		if (!checked.valid) throw checked.error;
	} catch (e) {
		if (e instanceof CelError) throw e;
		throw new CelError("the expression is no CEL, or its types do not fit");
	}
	return {
		reads: reads(ast),
		evaluate: (vars, meter) => {
			meter.spend(source.length / 100);
			const scope = { name: "params", value: vars.params, up: { name: "token", value: vars.token, up: undefined } };
			const v = run(ast, scope, meter);
			const absent = v instanceof Optional && v.value === undefined;
			return absent ? undefined : write(v instanceof Optional ? (v.value as Cel) : v, meter);
		},
	};
}

function reads(n: ASTNode): Expression["reads"] {
	if (n.op !== "." && n.op !== ".?" && n.op !== "[]" && n.op !== "[?]") return undefined;
	const [on, by] = n.args;
	const name = typeof by === "string" ? by : by.op === "value" ? by.args : undefined;
	return on.op === "id" && typeof name === "string" ? { root: on.args, name } : undefined;
}

/** The macros, methods and functions that are taken, with how many arguments. */
const macros = ["all 2", "exists 2", "exists_one 2", "filter 2", "map 2", "map 3"];
const methods = ["startsWith 1", "endsWith 1", "contains 1", "matches 1", "size 0", "orValue 1", "or 1", "hasValue 0", "value 0"];
const functions = ["size 1", "int 1", "double 1", "string 1"];

/** Patterns that mean the same in RE2 and in JavaScript: letters, classes and repetitions of one of them. */
const samePattern = /^\^?(?:(?:[\w /:@%,;=&#~<>!"'-]|\\[.*+?()[\]{}|^$\\/dw]|\[\^?[^\\[\]^]+\])(?:[*+?]|\{\d{1,2}(?:,\d{0,2})?\})?)*\$?$/u;

interface Count {
	macros: number;
	literals: number;
}

/** Refuses all that is not known to mean the same here as in policy-service: functions of the library, bytes, times, unsigned numbers. */
function inspect(n: ASTNode, names: readonly string[], count: Count): void {
	for (const part of partsOf(n, names, count)) inspect(part, names, count);
}

const unknown = (name: string) => new CelError(`the expression names ${name.slice(0, 64)}, which mappings do not have here`);

/** The parts of an expression that are still to be looked at. */
function partsOf(n: ASTNode, names: readonly string[], count: Count): readonly ASTNode[] {
	switch (n.op) {
		case "value":
			if (n.args !== null && typeof n.args === "object") throw new CelError("bytes and unsigned numbers are not taken here");
			return [];
		case "id":
			if (!names.includes(n.args)) throw unknown(n.args);
			return [];
		case ".":
		case ".?":
			return [n.args[0]];
		case "list":
		case "map": {
			if (++count.literals > 32) throw new CelError("more than 32 lists and maps in one expression");
			if (n.op === "list") return n.args;
			const keys = new Set(n.args.map(([key]) => (key.op === "value" && typeof key.args === "string" ? key.args : undefined)));
			if (keys.has(undefined) || keys.size < n.args.length) throw new CelError("the keys of a map are no different literal strings");
			return n.args.map(([, value]) => value);
		}
		case "!_":
		case "-_":
			return [n.args];
		case "call": {
			const [name, args] = n.args;
			if (name === "has" && args.length === 1 && args[0]?.op === ".") return [args[0].args[0]];
			if (!functions.includes(`${name} ${args.length}`)) throw unknown(name);
			return args;
		}
		case "rcall":
			return ofMethod(n.args, names, count);
		case "[]":
		case "[?]":
		case "?:":
			return n.args;
	}
	n.args.forEach(typed);
	return n.args;
}

/** Go's CEL guesses a type for the elements of an empty list, from the first operation on it. */
function typed(part: ASTNode): void {
	if (part.op === "list" && part.args.length === 0) throw new CelError("an empty list has no type where it is operated on");
}

function ofMethod(
	[name, on, args]: readonly [string, ASTNode, readonly ASTNode[]],
	names: readonly string[],
	count: Count,
): readonly ASTNode[] {
	if (on.op === "id" && on.args === "optional" && !names.includes("optional")) {
		if (args.length !== (name === "of" ? 1 : name === "none" ? 0 : -1)) throw unknown(name);
		return args;
	}
	typed(on);
	const [variable, ...rest] = args;
	if (macros.includes(`${name} ${args.length}`) && variable?.op === "id") {
		if (++count.macros > 8) throw new CelError("more than 8 macros in one expression");
		for (const part of rest) inspect(part, [...names, variable.args], count);
		return [on];
	}
	if (!methods.includes(`${name} ${args.length}`)) throw unknown(name);
	const pattern = name === "matches" ? (variable?.op === "value" ? variable.args : undefined) : "";
	if (typeof pattern !== "string" || !samePattern.test(pattern))
		throw new CelError("the pattern of matches is no literal, or none that is taken here");
	new RegExp(pattern, "u"); // it throws for a text that is no pattern
	return [on, ...args];
}

function run(n: ASTNode, s: Scope | undefined, m: Meter): Cel {
	m.spend(1);
	const of = (part: ASTNode) => run(part, s, m);
	switch (n.op) {
		case "value":
			return n.args as Cel;
		case "id": {
			let at = s;
			while (at && at.name !== n.args) at = at.up;
			if (!at) throw wrongType();
			return at.value;
		}
		case ".":
		case ".?":
			return select(of(n.args[0]), n.args[1], n.op === ".?");
		case "[]":
		case "[?]":
			return select(of(n.args[0]), of(n.args[1]), n.op === "[?]");
		case "list":
			return n.args.map(of);
		case "map":
			return new Map(n.args.map(([key, value]) => [String(key.args), of(value)]));
		case "?:": {
			const condition = of(n.args[0]);
			if (typeof condition !== "boolean") throw wrongType();
			return of(n.args[condition ? 1 : 2]);
		}
		case "||":
		case "&&":
			return decided(n.op === "||", n.args, of);
		case "!_": {
			const v = of(n.args);
			if (typeof v !== "boolean") throw wrongType();
			return !v;
		}
		case "-_": {
			const v = of(n.args);
			if (!isNumber(v)) throw wrongType();
			return typeof v === "bigint" ? int(-v) : -v;
		}
		case "call":
			return call(n.args[0], n.args[1][0] as ASTNode, of, m);
		case "rcall":
			return method(n.args, s, m);
		default:
			return binary(n.op, of(n.args[0]), of(n.args[1]), m);
	}
}

/** The value of || and &&, and of exists and all: one part can decide, also where others are errors. */
function decided<T>(decides: boolean, parts: Iterable<T>, of: (part: T) => Cel): boolean {
	let failure: unknown;
	for (const part of parts) {
		try {
			const v = of(part);
			if (v === decides) return decides;
			if (typeof v !== "boolean") throw wrongType();
		} catch (e) {
			if (!(e instanceof CelError) || e instanceof Spent) throw e;
			failure ??= e;
		}
	}
	if (failure !== undefined) throw failure;
	return !decides;
}

function int(v: bigint): bigint {
	if (BigInt.asIntN(64, v) !== v) throw new CelError("a number is out of range");
	return v;
}

function select(on: Cel, by: Cel, optional: boolean): Cel {
	if (on instanceof Optional) return on.value === undefined ? none : select(on.value, by, true);
	let v: Cel | undefined;
	if (isMap(on) && typeof by === "string") v = on.get(by);
	else if (isList(on) && typeof by === "bigint") v = by < 0n || by >= BigInt(on.length) ? undefined : on[Number(by)];
	else throw wrongType();
	if (v === undefined && !optional) throw missing();
	return optional ? (v === undefined ? none : new Optional(v)) : (v as Cel);
}

function sizeOf(v: Cel, m: Meter): bigint {
	if (typeof v === "string") {
		m.spend(v.length / 10);
		return BigInt(Array.from(v).length); // code points
	}
	if (isList(v)) return BigInt(v.length);
	if (isMap(v)) return BigInt(v.size);
	throw wrongType();
}

function call(name: string, arg: ASTNode, of: (part: ASTNode) => Cel, m: Meter): Cel {
	if (name === "has") {
		const [on, member] = arg.args as [ASTNode, string];
		const v = of(on);
		if (!isMap(v)) throw wrongType();
		return v.has(member);
	}
	const v = of(arg);
	if (name === "size") return sizeOf(v, m);
	if (name === "string") {
		if (typeof v === "string") return v;
		if (typeof v === "boolean" || typeof v === "bigint") return String(v);
		throw wrongType(); // of a double, other implementations write another text
	}
	if (typeof v === "string") m.spend(v.length / 10);
	if (name === "double" && isNumber(v)) return Number(v);
	if (name === "double" && typeof v === "string" && /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/.test(v) && Number.isFinite(Number(v)))
		return Number(v);
	if (name === "int" && typeof v === "bigint") return v;
	if (name === "int" && typeof v === "string" && /^[+-]?\d{1,30}$/.test(v)) return int(BigInt(v.replace("+", "")));
	if (name === "int" && typeof v === "number" && Math.abs(v) < 2 ** 63) return BigInt(Math.trunc(v));
	throw new CelError("a value cannot be converted to a number");
}

function method([name, on, args]: readonly [string, ASTNode, readonly ASTNode[]], s: Scope | undefined, m: Meter): Cel {
	const of = (part: ASTNode) => run(part, s, m);
	const [first, ...rest] = args;
	if (on.op === "id" && on.args === "optional" && (name === "of" || name === "none")) {
		return first === undefined ? none : new Optional(of(first));
	}
	const v = of(on);
	if (macros.includes(`${name} ${args.length}`)) return macro(name, v, String(first?.args), rest, s, m);
	if (v instanceof Optional) {
		if (name === "hasValue") return v.value !== undefined;
		const other = v.value === undefined && first ? of(first) : v.value;
		if (name === "or" && v.value !== undefined) return v;
		if ((name === "or") === other instanceof Optional && other !== undefined) return other;
		throw new CelError("the value of an optional that has none is read");
	}
	if (name === "size") return sizeOf(v, m);
	const text = first === undefined ? null : of(first);
	if (typeof v !== "string" || typeof text !== "string") throw wrongType();
	m.spend(v.length / 10);
	if (name === "startsWith") return v.startsWith(text);
	if (name === "endsWith") return v.endsWith(text);
	if (name === "contains") {
		m.spend(Math.ceil(v.length / 10) * Math.ceil(text.length / 10)); // at each place of the one, much of the other may fit
		return v.includes(text);
	}
	if (name !== "matches") throw wrongType();
	// each part that repeats may try each place, and so may the beginning
	const repeats = (text.startsWith("^") ? 0 : 1) + (text.match(/[*+?{]/g)?.length ?? 0);
	m.spend(text.length / 10 + (text.length * (v.length + 1) ** Math.max(1, repeats)) / 250);
	return new RegExp(text, "u").test(v);
}

function macro(name: string, range: Cel, variable: string, parts: readonly ASTNode[], s: Scope | undefined, m: Meter): Cel {
	if (!isList(range) && !isMap(range)) throw wrongType();
	m.spend(isList(range) ? range.length : range.size);
	if (isMap(range)) for (const name of range.keys()) m.spend(name.length / 10);
	const items = isList(range) ? range : [...range.keys()].sort(order);
	const of = (part: ASTNode | undefined, value: Cel) => run(part as ASTNode, { name: variable, value, up: s }, m);
	const test = (value: Cel) => {
		const is = of(parts[0], value);
		if (typeof is !== "boolean") throw wrongType();
		return is;
	};
	switch (name) {
		case "map":
			return (parts.length === 2 ? items.filter(test) : items).map((value) => of(parts.at(-1), value));
		case "filter":
			return items.filter(test);
		case "exists_one":
			return items.filter(test).length === 1;
	}
	return decided(name === "exists", items, test);
}

function binary(op: string, a: Cel, b: Cel, m: Meter): Cel {
	switch (op) {
		case "==":
			return equal(a, b, m);
		case "!=":
			return !equal(a, b, m);
		case "in":
			if (isMap(b) && typeof a === "string") return b.has(a);
			if (!isList(b)) throw wrongType();
			return b.some((one) => equal(a, one, m));
		case "<":
		case "<=":
		case ">":
		case ">=":
			return compare(op, a, b, m);
	}
	if (op === "+" && typeof a === "string" && typeof b === "string") {
		m.spend((a.length + b.length) / 10);
		return a + b;
	}
	if (op === "+" && isList(a) && isList(b)) {
		m.spend(a.length + b.length);
		return [...a, ...b];
	}
	if (typeof a === "bigint" && typeof b === "bigint") {
		if ((op === "/" || op === "%") && b === 0n) throw new CelError("division by zero");
		return int(op === "+" ? a + b : op === "-" ? a - b : op === "*" ? a * b : op === "/" ? a / b : a % b);
	}
	if (typeof a === "number" && typeof b === "number" && op !== "%") {
		return op === "+" ? a + b : op === "-" ? a - b : op === "*" ? a * b : a / b;
	}
	throw wrongType();
}

function equal(a: Cel, b: Cel, m: Meter): boolean {
	m.spend(1);
	if (a instanceof Optional || b instanceof Optional) throw wrongType();
	// biome-ignore lint/suspicious/noDoubleEquals: an int and a double are compared by their exact values
	if (isNumber(a) && isNumber(b)) return a == b;
	if (typeof a === "string" && typeof b === "string") {
		m.spend(Math.min(a.length, b.length) / 10);
		return a === b;
	}
	if (isList(a) && isList(b)) return a.length === b.length && a.every((v, n) => equal(v, b[n] as Cel, m));
	if (isMap(a) && isMap(b)) return a.size === b.size && [...a].every(([name, v]) => b.has(name) && equal(v, b.get(name) as Cel, m));
	return a === b;
}

function compare(op: string, a: Cel, b: Cel, m: Meter): boolean {
	if (typeof a === "string" && typeof b === "string") {
		m.spend(Math.min(a.length, b.length) / 10);
		return holds(op, order(a, b), 0);
	}
	if ((isNumber(a) && isNumber(b)) || (typeof a === "boolean" && typeof b === "boolean")) return holds(op, a, b);
	throw wrongType();
}

function holds(op: string, a: number | bigint | boolean, b: number | bigint | boolean): boolean {
	return op === "<" ? a < b : op === "<=" ? a <= b : op === ">" ? a > b : a >= b;
}

/** The order of texts by code points: JavaScript's is by the halves of surrogate pairs. */
function order(a: string, b: string): number {
	for (let n = 0; n < a.length && n < b.length; n++) {
		const [x, y] = [a.charCodeAt(n), b.charCodeAt(n)];
		if (x === y) continue;
		const pair = (c: number) => (c >= 0xe000 ? c - 0x800 : c >= 0xd800 ? c + 0x2000 : c);
		return pair(x) - pair(y);
	}
	return a.length - b.length;
}
