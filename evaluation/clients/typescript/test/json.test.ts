import assert from "node:assert/strict";
import { test } from "node:test";
import { JsonError, parseJson, plainJson, readJson } from "../src/json.js";

test("the reader agrees with JSON.parse where a text is not ambiguous", () => {
	const texts = [
		"null",
		" true ",
		"[]",
		"{}",
		'{"a":[1,-0,2.5e-3,1E400e0]}'.replace("1E400e0", "1e20"),
		'{"__proto__":{"decision":true},"constructor":1,"":2}',
		'"\\u00e9\\ud83d\\ude00\\"\\\\\\/\\b\\f\\n\\r\\t"',
		'[[[{"a":{"b":[null,false]}}]]]',
		"9007199254740991",
	];
	for (const text of texts) assert.equal(JSON.stringify(parseJson(text)), JSON.stringify(JSON.parse(text)), text);
});

test("the reader refuses what two readers could read differently", () => {
	const texts = [
		"",
		" ",
		"{",
		"[1,]",
		'{"a":1,}',
		'{"a":1 "b":2}',
		"{'a':1}",
		'{"a":1,"a":1}',
		'{"a":1,"\\u0061":2}',
		'[{"x":{"a":1,"a":2}}]',
		"{} {}",
		"{}x",
		"\ufeff{}",
		"01",
		"+1",
		"1.",
		".5",
		"NaN",
		"Infinity",
		"1e400",
		"9007199254740993",
		"-9007199254740992",
		'"\\ud800"',
		'"\\udc00\\ud800"',
		'"\\x41"',
		'"\\u12g4"',
		'"\n"',
		'"abc',
		"tru",
		"undefined",
		"[1 2]",
		"/* */ 1",
		"\u00a01",
		`${"[".repeat(65)}${"]".repeat(65)}`,
	];
	for (const text of texts) assert.throws(() => parseJson(text), JsonError, text);
	assert.equal(Array.isArray(parseJson(`${"[".repeat(63)}${"]".repeat(63)}`)), true);
	assert.throws(() => readJson(new Uint8Array([0x22, 0xff, 0x22])), /not UTF-8/);
	assert.throws(() => readJson(new Uint8Array([0x22, 0xed, 0xa0, 0x80, 0x22])), /not UTF-8/);
});

test("an object that was read inherits nothing", (t) => {
	const all = Object.prototype as { decision?: boolean };
	t.after(() => delete all.decision);
	all.decision = true;
	assert.equal((parseJson("{}") as { decision?: boolean }).decision, undefined);
});

test("what is sent is what JSON can say", () => {
	const date = new Date(0);
	const cyclic: { [name: string]: unknown } = {};
	cyclic.self = cyclic;
	class Decimal {
		value = 1;
	}
	const refused = [
		Number.NaN,
		Number.POSITIVE_INFINITY,
		2 ** 53,
		1n,
		Symbol("x"),
		() => 1,
		date,
		new Map(),
		new Set(),
		/x/,
		new Decimal(),
		new Uint8Array(1),
		Buffer.from("x"),
		new String("x"),
		Promise.resolve(),
		"\ud800",
		{ "\ud800": 1 },
		cyclic,
		[undefined],
		new Array(3),
		{ toJSON: () => 1 },
		JSON.parse('{"__proto__":{"a":1}}'),
		Object.create({ a: 1 }),
		{ [Symbol("x")]: 1 },
		[[[{ a: [date] }]]],
		new Array(200_000).fill(0),
	];
	for (const value of refused) assert.throws(() => plainJson({ value }), JsonError, String(typeof value));
	const value = { a: undefined, b: [1.5, -1, "é", null, true], c: Object.assign(Object.create(null), { d: {} }) };
	assert.equal(JSON.stringify(plainJson(value)), '{"b":[1.5,-1,"é",null,true],"c":{"d":{}}}');
});
