import type { Json, JsonObject } from "./types.js";

// Two readers of one text must not read it differently: names that come twice, texts that are not Unicode and integers
// that a double does not hold (beyond 2^53-1, written without fraction and exponent) are refused. Objects have no
// prototype, so that only members that were there are found.

const deepest = 64;

/** A text that is not JSON without ambiguities. */
export class JsonError extends Error {}

/** An object to be filled in. */
export type Members = { [name: string]: Json };

/** An object without a prototype. */
export function members(from: JsonObject = {}): Members {
	return Object.assign(Object.create(null), from) as Members;
}

/** Reads a text in UTF-8. */
export function readJson(bytes: Uint8Array): Json {
	let text: string;
	try {
		text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
	} catch {
		throw new JsonError("it is not UTF-8");
	}
	return parseJson(text);
}

/** Reads a text. */
export function parseJson(text: string): Json {
	const plain = /[ !#-[\]-\uffff]*/y;
	const number = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/y;
	const word = /true|false|null/y;
	let at = 0;

	function fail(what: string): never {
		throw new JsonError(`${what}, at ${at}`);
	}
	function take(pattern: RegExp): RegExpExecArray | null {
		pattern.lastIndex = at;
		const found = pattern.exec(text);
		if (found) at = pattern.lastIndex;
		return found;
	}
	function space(): void {
		while (" \t\n\r".includes(text[at] ?? "?")) at++;
	}
	/** Takes a character, after spaces. */
	function next(character: string): boolean {
		space();
		if (text[at] !== character) return false;
		at++;
		return true;
	}
	function string(): string {
		let value = "";
		for (;;) {
			value += take(plain)?.[0];
			const c = text[at++];
			if (c === '"') break;
			if (c !== "\\") fail("a string that does not end, or a control character");
			const letter = text[at++] ?? "";
			const hex = text.slice(at, at + 4);
			if (letter === "u" && /^[0-9a-fA-F]{4}$/.test(hex)) {
				value += String.fromCharCode(Number.parseInt(hex, 16));
				at += 4;
			} else {
				value += escapes.get(letter) ?? fail("an unknown escape");
			}
		}
		if (!value.isWellFormed()) fail("half of a surrogate pair");
		return value;
	}
	function object(depth: number): JsonObject {
		const value = members();
		if (next("}")) return value;
		do {
			if (!next('"')) fail("no name");
			const name = string();
			if (name in value) fail("a name that comes twice");
			if (!next(":")) fail("no colon");
			value[name] = any(depth);
		} while (next(","));
		if (!next("}")) fail("an object that does not end");
		return value;
	}
	function array(depth: number): Json[] {
		const value: Json[] = [];
		if (next("]")) return value;
		do value.push(any(depth));
		while (next(","));
		if (!next("]")) fail("an array that does not end");
		return value;
	}
	function any(depth: number): Json {
		if (depth > deepest) fail("too deep");
		if (next("{")) return object(depth + 1);
		if (next("[")) return array(depth + 1);
		if (next('"')) return string();
		const named = take(word)?.[0];
		if (named) return named === "null" ? null : named === "true";
		const digits = take(number) ?? fail("no value");
		const value = Number(digits[0]);
		const whole = digits[1] === undefined && digits[2] === undefined;
		if (!Number.isFinite(value) || (whole && !Number.isSafeInteger(value))) fail("a number that is too large");
		return value;
	}

	const value = any(1);
	space();
	if (at < text.length) fail("more after the value");
	return value;
}

const escapes = new Map([...'"\\/'].map((c) => [c, c]));
for (const [letter, c] of ["b\b", "f\f", "n\n", "r\r", "t\t"]) escapes.set(letter as string, c as string);

/** Values that a question may have, arrays and objects counted. */
const most = 100_000;

/**
 * A copy of a value that JSON can say, for sending. It throws a JsonError for all else: numbers that are not finite,
 * integers beyond 2^53-1, dates, functions, instances of classes, cycles. Members that are undefined are left out.
 */
export function plainJson(value: unknown): Json {
	let count = 0;
	function copy(v: unknown, depth: number, path: string): Json {
		const fail = (what: string): never => {
			throw new JsonError(`${path || "it"} ${what}`);
		};
		if (++count > most) fail("has too many values");
		if (depth > deepest) fail("is too deep, or holds itself");
		switch (typeof v) {
			case "boolean":
				return v;
			case "string":
				return v.isWellFormed() ? v : fail("is half of a surrogate pair");
			case "number":
				if (!Number.isFinite(v)) fail("is no finite number");
				return Number.isInteger(v) && !Number.isSafeInteger(v) ? fail("is an integer beyond 2^53-1; send a text") : v;
			case "object":
				break;
			default:
				return fail(`is ${typeof v === "undefined" ? "undefined" : `a ${typeof v}`}`);
		}
		if (v === null) return v;
		if (Object.getOwnPropertySymbols(v).length > 0) fail("has a symbol");
		if (Array.isArray(v)) {
			const items: Json[] = [];
			for (let n = 0; n < v.length; n++) items.push(copy(v[n], depth + 1, `${path}/${n}`)); // a gap is refused
			return items;
		}
		const prototype = Object.getPrototypeOf(v);
		// an object of another realm has another Object.prototype, which has no prototype either
		if (prototype !== null && Object.getPrototypeOf(prototype) !== null) fail("is no plain object");
		const all = members();
		for (const name of Object.keys(v)) {
			const member = (v as { [name: string]: unknown })[name];
			if (member === undefined) continue;
			if (name === "__proto__" || !name.isWellFormed()) fail("has a name that is not allowed");
			all[name] = copy(member, depth + 1, `${path}/${name}`);
		}
		return all;
	}
	return copy(value, 1, "");
}

/** Whether a value is an object, and neither null nor an array. */
export function isObject(v: Json | undefined): v is JsonObject {
	return typeof v === "object" && v !== null && !Array.isArray(v);
}

/** Whether a member is there, and not null. */
export function present(v: Json | undefined): v is Exclude<Json, null> {
	return v !== undefined && v !== null;
}

/** The text that a member holds, undefined if it is none. */
export function textOf(v: Json | undefined): string | undefined {
	return typeof v === "string" ? v : undefined;
}

/** Whether two values are the same one. */
export function same(a: Json | undefined, b: Json | undefined): boolean {
	if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((v, n) => same(v, b[n]));
	if (!isObject(a) || !isObject(b)) return a === b;
	const names = Object.keys(a);
	return names.length === Object.keys(b).length && names.every((name) => Object.hasOwn(b, name) && same(a[name], b[name]));
}
