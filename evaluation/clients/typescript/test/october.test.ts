import assert from "node:assert/strict";
import { test } from "node:test";
import type { ClientOptions, Handlers, Obligation } from "../src/index.js";
import { adopting, no, own, pdp, question } from "./pdp.js";

const step = (id: string, properties: object = { acr_value: "gold" }) => ({ id, type: "step-up", properties });
const end = (id: string, properties: object = { subject: "alice" }) => ({ id, type: "session_termination", properties });
const tell = (properties: object) => ({ id: "tell", type: "notification", properties });
const last = end("last");

/** Enforces an answer with these obligations, and returns the outcome, the obligations that were handled, and the receipts. */
async function enforced(t: Parameters<typeof pdp>[0], answer: object, options: Partial<ClientOptions> = {}) {
	const p = await pdp(t, ({ path }) => (path.startsWith("/v1/") ? { status: 204 } : { json: answer, id: "d" }));
	const handled: Obligation[] = [];
	const keep = (o: Obligation) => void handled.push(o);
	const handlers: Handlers = Object.fromEntries(
		["step-up", "notification", "session_termination", "custom", "redact", "log", "toString"].map((type) => [type, keep]),
	);
	const act = t.mock.fn(() => "yes");
	const result = await p
		.client({ handlers, ...options })
		.enforce(question, act)
		.catch((error) => error.kind);
	assert.equal(act.mock.callCount(), result === "yes" ? 1 : 0);
	const receipts = p.asked.flatMap(({ path, body }) => (path.startsWith("/v1/") ? body.obligations : []));
	return { result, handled, receipts, asked: p.asked[0]?.body };
}
const allow = (...obligations: unknown[]) => ({ decision: true, context: { obligations } });

test("a question that is enforced adopts October's draft, and lists the standard types and custom", async (t) => {
	const { asked } = await enforced(t, { decision: true });
	assert.deepEqual(asked.context, adopting("custom", "notification", "session_termination", "step-up"));
	const { asked: july } = await enforced(t, { decision: true }, { obligations: "july" });
	const types = ["custom", "log", "notification", "redact", "session_termination", "step-up", "toString"];
	assert.deepEqual(july.context, { supported_obligations: types });
});

test("handlers get obligations in one form, whatever the draft is", async (t) => {
	const written = [
		[step("a", { acr_value: "gold", amr_values: ["mfa"] }), step("a", { acr_value: "gold", amr_values: ["mfa"] })],
		[tell({ to: ["ann"], body: "b", topic: "t" }), tell({ to: "ann", body: "b", topic: "t" })],
		[tell({ to: ["ann", "bob"], body: "b" }), tell({ to: ["ann", "bob"], body: "b" })],
		[end("a"), end("a")],
		[own("a", "redact", { fields: ["/a"] }), { id: "a", type: "redact", properties: { fields: ["/a"] } }],
		[
			{ id: "a", type: "custom", properties: { vendor: "dlp", type: "redact" } },
			{ id: "a", type: "custom", properties: { vendor: "dlp", type: "redact" } },
		],
		[{ ...end("a"), comment: "ignored" }, { ...end("a") }],
	];
	for (const [sent, want] of written) {
		const { result, handled, receipts } = await enforced(t, allow(sent));
		assert.deepEqual([result, handled], ["yes", [want]]);
		assert.deepEqual(receipts, [{ id: want?.id, status: "discharged" }]);
	}
});

/** What an adopted PEP must not act upon. The last obligation of each is executed all the same, if it can be read. */
const lies: { [name: string]: unknown } = {
	"no obligation": [],
	"an object": {},
	null: null,
	"the native form": { redact: true },
	"no object": ["x", last],
	"null among them": [null, last],
	"no id": [{ type: "custom", properties: {} }, last],
	"no type": [{ id: "1", properties: {} }, last],
	"an id that is no text": [{ ...step("1"), id: 1 }, last],
	"no properties": [{ id: "1", type: "custom" }, last],
	"properties beside it": [{ id: "1", type: "step-up", acr_value: "gold" }, last],
	"an unknown type": [{ id: "1", type: "unheard-of", properties: {} }, last],
	"an own name as the type": [{ id: "1", type: "redact", properties: { fields: ["/a"] } }, last],
	"a name that objects inherit": [{ id: "1", type: "toString", properties: {} }, last],
	"another vendor's type by its name": [own("1", "unheard-of"), last],
	"a standard type of ours": [own("1", "step-up", { acr_value: "gold" }), last],
	"an own type without properties": [{ id: "1", type: "custom", properties: { vendor: "policy-service", type: "redact" } }, last],
	"an own type, flat": [{ id: "1", type: "custom", properties: { vendor: "policy-service", type: "redact", fields: ["/a"] } }, last],
	"a text as the destinations": [tell({ to: "ann", body: "b" }), last],
	"no destination": [tell({ to: [], body: "b" }), last],
	"a destination that is no text": [tell({ to: ["a", 1], body: "b" }), last],
	"no body": [tell({ to: ["a"] }), last],
	"an unknown member": [step("1", { acr_value: "gold", max_age: 1 }), last],
	"no acr_value": [step("1", { amr_values: ["mfa"] }), last],
	"amr_values that are a text": [step("1", { acr_value: "gold", amr_values: "mfa" }), last],
	"a topic that is null": [tell({ to: ["a"], body: "b", topic: null }), last],
	"no subject": [end("1", {}), last],
	"one that is malformed, and like another": [tell({ to: ["ann"], body: "b" }), tell({ to: "ann", body: "b" }), last],
	"two of one id": [step("1"), step("1", { acr_value: "silver" }), last],
};

for (const [name, obligations] of Object.entries(lies)) {
	test(`an adopted client does not act: ${name}`, async (t) => {
		for (const decision of [true, false]) {
			const { result, handled } = await enforced(t, { decision, context: { obligations } });
			assert.notEqual(result, "yes");
			assert.deepEqual(handled, Array.isArray(obligations) && obligations.length > 0 ? [last] : []);
		}
	});
}

test("an adopted client does not act: a proxy has deleted the member, so July's answer comes", async (t) => {
	const redact = { id: "hide", type: "redact", properties: { fields: ["/a"] } };
	for (const [answer, want] of [
		[allow(redact), []],
		[{ decision: true, obligations: [redact], context: { obligations: [redact] } }, []],
		[allow(tell({ to: "ann", body: "b" })), []],
		[{ decision: true, obligations: { redact: true } }, []],
		[{ decision: true, obligations: { redact: true }, obligation_details: [redact] }, []],
		[allow(redact, step("up")), [step("up")]],
	] as const) {
		const { result, handled } = await enforced(t, answer);
		assert.notEqual(result, "yes");
		assert.deepEqual(handled, want);
	}
});

test("one obligation is executed once, however often it stands in an answer", async (t) => {
	for (const obligations of ["october", "july"] as const) {
		for (const answer of [allow(step("1"), step("1")), { ...allow(step("1")), obligations: [step("1")] }]) {
			const { result, handled, receipts } = await enforced(t, answer, { obligations });
			assert.deepEqual([result, handled], ["yes", [step("1")]]);
			assert.deepEqual(receipts, [{ id: "1", status: "discharged" }]);
		}
		const { result, handled, receipts } = await enforced(t, allow(step("1"), step("1", { acr_value: "silver" })), { obligations });
		assert.deepEqual([result, handled], ["obligated", []]);
		assert.deepEqual(receipts, [{ id: "1", status: "failed", detail: "another obligation has its id" }]);
	}
});

test("a large obligation is compared once: a PDP that lies cannot keep a client busy", async (t) => {
	const large = { id: "1", type: "custom", properties: Object.fromEntries(Array.from({ length: 40_000 }, (_, n) => [`k${n}`, "x"])) };
	const others = Array.from({ length: 8_000 }, () => ({ ...large, properties: {} }));
	for (const obligations of ["october", "july"] as const) {
		const began = Date.now();
		const { result, handled } = await enforced(t, allow(large, ...others), { obligations, receipts: false });
		assert.deepEqual([result, handled], ["obligated", []]);
		assert.ok(Date.now() - began < 30_000);
	}
});

test("an item of a batch is read as adopted", async (t) => {
	const redact = { id: "hide", type: "redact", properties: {} };
	const { client } = await pdp(t, ({ path }) =>
		path.startsWith("/v1/") ? { status: 204 } : { json: { evaluations: [allow(own("a", "redact")), allow(redact), allow()] } },
	);
	const c = client({ handlers: { redact: () => {} } });
	const questions = [question, question, question];
	assert.deepEqual(await c.evaluateBatch(questions, { allow: () => "yes", deny: (e) => e.kind }), ["yes", "obligated", "obligated"]);
	assert.ok(await no(c.enforceAll(questions, () => {})));
	const whole = await pdp(t, () => ({ json: { evaluations: [{ decision: true }], context: { obligations: [] } } }));
	assert.equal((await no(whole.client().enforceAll([question], () => {}))).kind, "obligated");
});

test("a search leaves out results that carry obligations, and yields the others", async (t) => {
	const document = (id: string, more: object = {}) => ({ type: "document", id, ...more });
	const obligations = [step("1")];
	const pages: [object, string[]][] = [
		[{ results: [document("1"), document("2", { context: { obligations } }), document("3", { context: { a: 1 } })] }, ["1", "3"]],
		[{ results: [document("1"), document("2", { obligations, context: { obligations } }), document("3", { obligations })] }, ["1"]],
		[{ results: [document("1", { context: { obligations: [] } }), document("2", { context: { obligations: "x" } })] }, []],
		[{ context: { obligations }, results: [document("1"), document("2", { context: {} }), document("3", { context: null })] }, ["2"]],
		[{ context: { obligations: {} }, results: [document("1"), document("2", { context: {} })] }, ["2"]],
	];
	for (const [json, want] of pages) {
		const { client, asked } = await pdp(t, () => ({ json }));
		const found: string[] = [];
		const query = { ...question, context: { a: 1, ...adopting("custom") } };
		for await (const { id } of client({ handlers: { custom: () => {} } }).searchResources(query)) found.push(id);
		assert.deepEqual(found, want);
		assert.deepEqual(asked[0]?.body.context, { a: 1 });
	}
});
