// biome-ignore-all lint/suspicious/noTemplateCurlyInString: a map of CEL behind a $ looks like a template
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { Binding, type CoazOptions, defaults, forgotten, Mapping, MappingError } from "../src/coaz.js";
import type { Json, JsonObject } from "../src/types.js";
import { repository } from "./repository.js";

const coaz = new URL("evaluation/coaz/", repository);
const tool = (mapping: unknown) => ({ name: "t", inputSchema: { type: "object", "x-authzen-mapping": mapping } });
const operation = {
	method: "tools/call",
	params: {
		name: "t",
		arguments: { id: "i-1", n: 7, list: ["a", "b"], map: { k: "v" }, empty: "", none: [], nothing: {}, big: 2 ** 53 - 1 },
	},
	token: { sub: "alice", client_id: "agent-1", act: { sub: "carol" }, roles: ["r"], aud: "https://mcp.example.com" },
};
const parts = {
	subject: { type: "identity", id: "$token.sub" },
	action: { name: "a" },
	resource: { type: "t", id: "i" },
	context: { agent: "$token.?client_id" },
};
const single = (change: object) => ({ evaluation: { ...parts, ...change } });
const ask = (mapping: unknown, options: CoazOptions = {}) => {
	const parsed = new Binding(options).parse(tool(mapping));
	assert.ok(parsed instanceof Mapping);
	return parsed.questions(operation);
};
const value = (expression: string) => ask(single({ context: { x: expression } })).questions[0]?.context?.x;
const clean = (v: unknown) => JSON.parse(JSON.stringify(v)) as unknown;

function refused(mapping: unknown, pointer?: string, detail = "", options: CoazOptions = {}): void {
	assert.throws(
		() => ask(mapping, options),
		(e: unknown) => {
			assert.ok(e instanceof MappingError, `${JSON.stringify(mapping)}: ${e}`);
			assert.equal(e.code, -32602);
			if (pointer !== undefined) assert.equal(e.pointer, pointer, `${JSON.stringify(mapping)}: ${e.message}`);
			assert.match(e.message, new RegExp(detail.replaceAll(/[$()+.?[\]]/g, "\\$&")));
			assert.ok(!e.message.includes("alice") && !e.message.includes("i-1"));
			return true;
		},
		JSON.stringify(mapping),
	);
}

test("the figures of the profile, member for member", () => {
	let figures = 0;
	for (const file of readdirSync(new URL("testdata/figures/", coaz))) {
		const text = readFileSync(new URL(`testdata/figures/${file}`, coaz), "utf8");
		const part = Object.fromEntries(
			text
				.split(/^-- (.+) --$/m)
				.slice(1)
				.flatMap((v, n, all) => (n % 2 ? [] : [[v.replace(".json", ""), JSON.parse(all[n + 1] ?? "") as JsonObject]])),
		);
		if (file.startsWith("framework") || part.tool?.coaz) continue; // of another profile's variables, and of the older dialect
		const op = part.operation as unknown as typeof operation;
		const binding = new Binding();
		const mapping = part.mapping
			? binding.compile(part.mapping)
			: part.tool
				? binding.parse(part.tool)
				: (binding.default(op.method) ?? binding.forgotten(op.method));
		assert.ok(mapping instanceof Mapping, file);
		const { api, questions } = mapping.questions(op);
		const { evaluations, ...printed } = part[api] as { evaluations?: JsonObject[] } & JsonObject;
		assert.deepEqual(
			clean(questions),
			(evaluations ?? [{}]).map((entry) => ({ ...printed, ...entry })),
			file,
		);
		figures++;
	}
	assert.ok(figures >= 20, `${figures} figures`);
});

test("the defaults are those of policy-service", () => {
	assert.deepEqual(clean(defaults), JSON.parse(readFileSync(new URL("defaults.json", coaz), "utf8")));
	const binding = new Binding();
	assert.equal(binding.default("ping"), "pass");
	assert.equal(binding.default("notifications/initialized"), "pass");
	for (const method of ["initialize", "resources/templates/list", "server/discover", "x", "constructor", "Tools/Call", ""])
		assert.equal(binding.default(method), undefined);
	const all = JSON.parse(readFileSync(new URL("forgotten.json", coaz), "utf8"));
	for (const [method, mapping] of Object.entries(forgotten)) assert.deepEqual(clean(mapping), all[method]);
	for (const method of ["initialize", "resources/templates/list"]) assert.ok(binding.forgotten(method) instanceof Mapping);
	for (const method of ["tools/list", "ping", "server/discover", "constructor", ""]) assert.equal(binding.forgotten(method), undefined);
});

// [expression, params, result of policy-service's own CEL]: of the generator of evaluation/coaz
const cases = JSON.parse(readFileSync(new URL("evaluation/clients/typescript/test/cel.json", repository), "utf8")) as [
	string,
	string,
	string,
][];
test("expressions yield what they do in policy-service, or are refused", () => {
	let equal = 0;
	const binding = new Binding();
	for (const [expression, params, want] of cases) {
		let got: Json | undefined;
		try {
			const mapping = binding.parse(tool(single({ context: { x: `$${expression}` } })));
			got = mapping?.questions({ method: "tools/call", params: JSON.parse(params), token: { sub: "alice" } }).questions[0]?.context?.x;
		} catch (e) {
			assert.ok(e instanceof MappingError, `${expression}: ${e}`);
			continue;
		}
		assert.notEqual(want, "error", `${expression} on ${params}: ${JSON.stringify(got)}`);
		assert.deepEqual(clean(got ?? null), want === "absent" ? null : JSON.parse(want), `${expression} on ${params}`);
		equal++;
	}
	assert.ok(cases.length >= 300 && equal >= 150, `${equal} of ${cases.length} are equal`);
});

test("what expressions yield", () => {
	for (const [expression, want] of [
		["$'s'", "s"],
		["$-7", -7],
		["$1.5", 1.5],
		["$[1, 'a', [true]]", [1, "a", [true]]],
		["${'b': 1, 'a': {'c': [2.5]}}", { a: { c: [2.5] }, b: 1 }],
		["$params.arguments.list", ["a", "b"]],
		["$optional.of(params.name)", "t"],
		["$params.arguments.?no.orValue('d')", "d"],
		["$params.arguments.?no", undefined],
		["$params.arguments.?no.deeper", undefined],
		["$params.arguments.?map.k", "v"],
		["$optional.none()", undefined],
		["$params.arguments.?no.or(params.arguments.?id)", "i-1"],
		["$params.arguments.?id.or(optional.of('x')).value()", "i-1"],
		["$params.arguments.?no.or(params.arguments.?no)", undefined],
		["$params.arguments.?no.hasValue() || params.arguments.?n.hasValue()", true],
		["$params.arguments.?no.orValue(null)", null],
		["$null", null],
		["$has(params.arguments.no)", false],
		["$'no' in params.arguments", false],
		["$params.arguments.n / 2", 3],
		["$1 < 1.5", true],
		["$'🙂' < '\uffff'", false],
		["$false && 1 / 0 == 1", false],
		["$1 / 0 == 1 || true", true],
		["$params.arguments.list.map(x, x + '!')", ["a!", "b!"]],
		["$params.arguments.map(k, k)", ["big", "empty", "id", "list", "map", "n", "none", "nothing"]],
		["$size('🙂')", 1],
		["$string(params.arguments.n)", "7"],
		["$'a-1'.matches('^[a-z]+-\\\\d$')", true],
		["$params.arguments.?no.orValue([])", []],
		["$[1, 2].exists_one(x, x > 1)", true],
		["$$x", "$x"],
		["$$$x", "$$x"],
		["a$b", "a$b"],
		["token.sub", "token.sub"],
	] as [string, Json | undefined][]) {
		const got = value(expression);
		assert.deepEqual(got === undefined ? got : clean(got), want, expression);
	}
});

test("expressions that are refused", () => {
	for (const expression of [
		"$",
		"$1 +",
		"$request.id",
		"$env",
		"$now()",
		"$true ? 'a' : request.id",
		"$true ? $params.name : 'a'",
		"$timestamp('2026-01-01T00:00:00Z')",
		"$duration('1s')",
		"$b'a'",
		"$7u",
		"$type(1)",
		"$dyn(1)",
		"$[optional.of(1)]",
		"$optional.of(optional.of(1))",
		"$1.0 / 0.0",
		"$1 / 0",
		"$1 % 0",
		"$9223372036854775807 + 1",
		"$-(-9223372036854775807 - 1)",
		"$9007199254740993",
		"${1: 2}",
		"${params.name: 1}",
		"${'a': 1, 'a': 2}",
		"$1 + 1.5",
		"$'a' + 1",
		"$1 < 'a'",
		"$params.arguments.no",
		"$params.name.?x",
		"$token.sub.?x.orValue('admin')",
		"$string(1.5)",
		"$params.arguments.?no.value()",
		"$'x'.matches(params.name)",
		"$'x'.matches('(a*)*')",
		"$'x'.matches('.')",
		"$'x'.matches('\\\\s')",
		"$int('0x10')",
		"$int('')",
		"$double('')",
		"$double('0x10')",
		"$'A'.lowerAscii()",
		"$'a,b'.split(',')",
		"$cel.bind(x, 1, x)",
		"$params.constructor",
		"$params.__proto__",
		"$params.arguments['toString']",
		"$params.arguments.list[2]",
		"$params.arguments.list[-1]",
		"$params.arguments.list['0']",
		"$params.name ? 1 : 2",
		"$!1",
		"$[].map(x, x)",
		"$params.arguments.big + 1",
		"$google.protobuf.Int32Value{value: 1}",
		`$'${"x".repeat(2050)}'`,
		`$${"(".repeat(200)}1${")".repeat(200)}`,
		`$${"[".repeat(100)}1${"]".repeat(100)}`,
	]) {
		refused(single({ context: { x: expression } }), "/evaluation/context/x");
	}
	for (const place of [
		"$params.arguments.?no",
		"$null",
		"$params.arguments.empty",
		"$params.arguments.n",
		"$params.arguments.list",
		"$params.arguments.map",
		"$1",
		1,
		"",
		null,
		["a"],
	]) {
		refused(single({ resource: { type: "t", id: place } }), "/evaluation/resource/id");
		refused(single({ resource: { type: place, id: "i" } }), "/evaluation/resource/type");
		refused(single({ action: { name: place } }), "/evaluation/action/name");
		refused(single({ subject: { type: place, id: "$token.sub" } }), "/evaluation/subject/type");
	}
	for (const whole of ["$params.?no", "$null", "$params.name", 7, "text", ["a"]]) {
		refused(single({ resource: whole }), "/evaluation/resource");
		refused(single({ action: whole }), "/evaluation/action");
		refused(single({ context: whole === "$params.?no" ? "$params.name" : whole }), "/evaluation/context");
	}
});

test("envelopes and templates that are refused", () => {
	for (const [mapping, pointer] of [
		[{}, ""],
		[{ evaluation: {}, evaluations: {} }, ""],
		[{ search: {} }, "/search"],
		[{ Evaluation: {} }, "/Evaluation"],
		[{ evaluation: [] }, "/evaluation"],
		[{ evaluation: null }, "/evaluation"],
		["evaluation", ""],
		[null, ""],
		[[], ""],
		[{ evaluation: "$params.arguments" }, "/evaluation"],
		[{ evaluations: {} }, "/evaluations/evaluations"],
		[{ evaluations: { evaluations: [] } }, "/evaluations/evaluations"],
		[{ evaluations: { evaluations: "$params.arguments.list" } }, "/evaluations/evaluations"],
		[{ evaluations: { evaluations: ["$params.arguments.map"] } }, "/evaluations/evaluations/0"],
		[{ evaluation: { ...parts, options: {} } }, "/evaluation/options"],
		[{ evaluations: { options: {}, evaluations: [{}] } }, "/evaluations/options"],
		[{ evaluations: { action: { name: "a" }, evaluations: [{}] } }, "/evaluations/resource"],
		[{ evaluations: { ...parts, evaluations: [{ subject: parts.subject }] } }, "/evaluations/evaluations/0/subject"],
		[single({ action: undefined }), "/evaluation/action"],
		[single({ resource: { type: "t" } }), "/evaluation/resource/id"],
		[single({ resource: { type: "t", id: "i", owner: "x" } }), "/evaluation/resource/owner"],
		[single({ resource: "${'type': 't', 'id': 'i', 'owner': 'x'}" }), "/evaluation/resource/owner"],
		[single({ resource: { type: "t", id: "i", properties: ["x"] } }), "/evaluation/resource/properties"],
		[single({ context: { approval_id: "a" } }), "/evaluation/context/approval_id"],
		[single({ context: { supported_mandatory_extensions: [] } }), "/evaluation/context/supported_mandatory_extensions"],
		[single({ context: { pdp: {} } }), "/evaluation/context/pdp"],
		[single({ context: "${'approved': true}" }), "/evaluation/context/approved"],
		[single({ context: "${'action': {}}" }), "/evaluation/context/action"],
		[single({ context: { x: Number.NaN } }), ""],
		[single({ context: { x: 2 ** 53 } }), ""],
		[single({ context: { x: new Date() } }), ""],
	] as [unknown, string][])
		refused(mapping, pointer);
	let deep: Json = 1;
	for (let n = 0; n < 20; n++) deep = [deep];
	refused(single({ context: { deep } }), undefined, "levels");
	refused(single({ context: { long: "x".repeat(33_000) } }), "", "bytes");
	refused({ evaluations: { ...parts, evaluations: Array.from({ length: 65 }, () => ({})) } }, "/evaluations/evaluations", "64 entries");
	assert.throws(() => new Binding().parse({ coaz: true, inputSchema: { "x-coaz-mapping": {} } }), MappingError);
	assert.equal(new Binding().parse({ name: "t", inputSchema: { type: "object" } }), undefined);
});

test("the subject is the token's, and is supplied", () => {
	for (const id of ["root", "$params.arguments.id", "$token.client_id", "$token.sub + 'x'"])
		refused(single({ subject: { id } }), "/evaluation/subject/id", "the subject is not");
	refused(single({ subject: "${'type': 'identity', 'id': 'root'}" }), "/evaluation/subject/id");
	for (const subject of [undefined, {}, { id: "$token.sub" }, "${'id': token.sub}", { id: "$'ali' + 'ce'" }]) {
		assert.deepEqual(clean(ask(single({ subject })).questions[0]?.subject), { type: "identity", id: "alice" });
	}
	assert.deepEqual(ask(single({}), { subjectClaim: "/act/sub" }).questions[0]?.subject.id, "carol");
	for (const claim of ["roles", "nobody", "/act/no", "/roles/0/x"])
		refused(single({}), "/evaluation/subject/id", "", { subjectClaim: claim });
	const operators = new Binding().compile(single({ subject: { type: "user", id: "root" }, context: { approval_id: "a" } }));
	assert.equal(operators.questions({ ...operation, method: "x/y" }).questions[0]?.subject.id, "root");
	assert.throws(() => new Binding().parse(tool(single({})))?.questions({ ...operation, method: "resources/read" }), MappingError);
});

test("entries take the defaults beside them", () => {
	const { api, questions } = ask({
		evaluations: {
			resource: { type: "t", id: "i", properties: { p: 1 } },
			context: { deep: 1 },
			evaluations: [
				{ action: { name: "read" } },
				{ action: { name: "write" }, resource: { type: "u", id: "j" }, context: { own: "$params.name" } },
				{ action: { name: "list" }, resource: { id: "k" } },
			],
		},
	});
	const subject = { type: "identity", id: "alice" };
	assert.equal(api, "evaluations");
	assert.deepEqual(clean(questions), [
		{ subject, action: { name: "read" }, resource: { type: "t", id: "i", properties: { p: 1 } }, context: { deep: 1 } },
		{ subject, action: { name: "write" }, resource: { type: "u", id: "j" }, context: { own: "t" } },
		{ subject, action: { name: "list" }, resource: { type: "t", id: "k" }, context: { deep: 1 } },
	]);
	refused(
		{ evaluations: { ...parts, evaluations: [{ resource: { id: "$params.arguments.?no" } }] } },
		"/evaluations/evaluations/0/resource/id",
	);
	// A whole part must be whole: a caller that leaves a member out does not have the default asked about.
	for (const [own, at] of [
		[{ resource: "${}" }, "resource/type"],
		[{ resource: "${'type': 'object'}" }, "resource/id"],
		[{ resource: "${'properties': {}}" }, "resource/type"],
		[{ action: "${}" }, "action/name"],
	] as const)
		refused({ evaluations: { ...parts, evaluations: [{}, own] } }, `/evaluations/evaluations/1/${at}`);
});

test("this server is one string", () => {
	const list = (aud: unknown, resource?: string) => {
		const mapping = new Binding(resource === undefined ? {} : { resource }).default("tools/list") as Mapping;
		return mapping.questions({ method: "tools/list", token: { sub: "a", aud } }).questions[0]?.resource.id;
	};
	assert.equal(list("r"), "r");
	assert.equal(list(["s", "r"], "r"), "r");
	assert.equal(list(undefined, "r"), "r");
	for (const [aud, own] of [[["r", "s"]], [[]], [""], [undefined], [7], [[7]], ["s", "r"], [null, "r"]] as [unknown, string?][])
		assert.throws(() => list(aud, own), MappingError);
});

test("no mapping keeps its PEP busy", () => {
	const many = (n: number, s: string) => s.repeat(n);
	assert.throws(
		() => ask(single({ resource: `$\{'type': 't', 'id': 'i', '${many(1000, "x")}': 1}`.replace("\\", "") })),
		(e: Error) => e.message.length < 600,
	);
	const params = {
		s: many(500_000, "x"),
		d: many(500_000, "1"),
		h: many(50_000, "x"),
		n: Object.fromEntries(Array.from({ length: 50 }, (_, n) => [many(2000, "k") + n, 1])),
		l: Array.from({ length: 4000 }, () => 1),
		t: Array.from({ length: 400 }, () => many(100, "y")),
		o: Object.fromEntries(Array.from({ length: 4000 }, (_, n) => [`k${n}`, 0.5])),
	};
	for (const x of [
		"$params.l.map(a, params.l.map(b, params.l.map(c, d)))",
		"$params.l.map(a, params.l.map(b, params.l.map(c, params.l)))",
		`$[1]${many(8, ".map(a, [a,a,a,a,a,a,a,a])")}`,
		`$['x']${many(8, ".map(a, a + a + a + a + a)")}`,
		`$params.s${many(30, " + params.s")}`,
		"$params.l.map(a, params.s)",
		"$params.l.map(a, params)",
		"$params.l.exists(a, params == params)",
		"$params.l.exists(a, params.t.exists(b, b.contains('z')))",
		"$params.s.matches('x*x*x*x*y')",
		"$params.h.contains(params.h)",
		"$params.l.exists(a, size(params.s) == a)",
		"$params.l.exists(a, double(params.d) == 1.5)",
		"$params.l.exists(a, params.n.exists(k, k == 'z'))",
		"$params.l.exists(a, params.s.matches('^x+y$'))",
		"$params.l.all(a, params.o.exists(k, true))",
		"$params.l.all(a, !(params.o in [a]))",
		Array.from({ length: 2000 }, () => "$params.s"),
		Array.from({ length: 2000 }, () => "$[params.l]"),
	]) {
		const mapping = () =>
			new Binding().parse(tool(single({ context: { x } })))?.questions({ method: "tools/call", params, token: { sub: "alice" } });
		assert.throws(mapping, MappingError, JSON.stringify(x).slice(0, 80));
	}
});
