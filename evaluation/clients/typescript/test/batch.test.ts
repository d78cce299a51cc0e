import assert from "node:assert/strict";
import { test } from "node:test";
import { adopting, no, own, pdp, question, type Reply } from "./pdp.js";

const questions = [question, { ...question, resource: { type: "document", id: "2" } }];
const branches = { allow: () => "yes", deny: (e: { kind: string }) => e.kind };
const yes = { decision: true };
const not = { decision: false };
const owes = (id: string) => ({ decision: true, context: { obligations: [own(id, "x")] } });

test("a batch has one result for each question, in order", async (t) => {
	let reply: Reply = "";
	const { client, asked } = await pdp(t, ({ path }) => (path.startsWith("/v1/") ? { status: 204 } : reply));
	const c = client({ handlers: { x: () => {} }, breaker: { failures: 0, coolDown: 0 } });
	const cases: [unknown, string | undefined, string[]][] = [
		[[yes, not], undefined, ["yes", "denied"]],
		[[owes("1"), { decision: true, context: { obligations: [own("z", "z")] } }], undefined, ["yes", "obligated"]],
		[[yes, { decision: 1 }], undefined, ["yes", "odd"]],
		[[{ ...not, context: { error: { status: 400 } } }, yes], undefined, ["bad_item", "yes"]],
		[[not], "deny_on_first_deny", ["denied", "skipped"]],
		[[yes], "permit_on_first_permit", ["yes", "skipped"]],
		[[yes], undefined, ["odd", "odd"]],
		[[yes], "deny_on_first_deny", ["odd", "odd"]],
		[[{ ...not, context: { possible: false } }], "deny_on_first_deny", ["odd", "odd"]],
		[[], "permit_on_first_permit", ["odd", "odd"]],
		[[yes, yes, yes], undefined, ["odd", "odd"]],
		[{ 0: yes, 1: yes }, undefined, ["odd", "odd"]],
		[undefined, undefined, ["odd", "odd"]],
	];
	for (const [evaluations, semantic, want] of cases) {
		reply = { json: { decision: true, evaluations }, id: "d" };
		assert.deepEqual(await c.evaluateBatch(questions, branches, { ...(semantic && { semantic: semantic as "execute_all" }) }), want);
	}
	const declared = questions.map((q) => ({ ...q, context: adopting("custom") }));
	assert.equal(asked[0]?.path, "/access/v1/evaluations");
	assert.deepEqual(asked[0]?.body, { evaluations: declared });
	assert.ok(asked.some(({ path, body }) => path === "/v1/decisions/d.0/obligations" && body.obligations[0].status === "discharged"));
	reply = { json: { evaluations: [yes, yes], context: { obligations: [{ id: "1", type: "x" }] } } };
	assert.deepEqual(await c.evaluateBatch(questions, branches), ["obligated", "obligated"]);
	reply = { status: 500 };
	assert.deepEqual(await c.evaluateBatch(questions, branches), ["unavailable", "unavailable"]);
});

test("a batch of nothing, or of a question that is none, is not asked", async (t) => {
	const { client, asked } = await pdp(t, () => ({ json: { evaluations: [] } }));
	for (const bad of [[], undefined, "x", [question, {}], [undefined]] as never[]) {
		assert.equal((await no(client().evaluateBatch(bad, branches))).kind, "not_asked");
		assert.equal((await no(client().enforceAll(bad, () => {}))).kind, "not_asked");
	}
	assert.equal((await no(client().evaluateBatch(questions, branches, { semantic: "all" as never }))).kind, "not_asked");
	assert.equal(asked.length, 0);
});

test("enforceAll acts once, and only if each is a yes", async (t) => {
	let reply: Reply = { json: { evaluations: [yes, owes("1")] }, id: "d" };
	const { client, asked } = await pdp(t, ({ path }) => (path.startsWith("/v1/") ? { status: 204 } : reply));
	const x = t.mock.fn(() => {});
	const c = client({ handlers: { x } });
	const act = t.mock.fn((permits: readonly { decisionId?: string }[]) => permits.map(({ decisionId }) => decisionId));
	assert.deepEqual(await c.enforceAll(questions, act), ["d.0", "d.1"]);
	assert.deepEqual([act.mock.callCount(), x.mock.callCount()], [1, 1]);
	assert.deepEqual(asked[0]?.body.options, { evaluations_semantic: "deny_on_first_deny" });
	for (const [evaluations, kind] of [
		[[owes("1"), not], "denied"],
		[[not], "denied"],
		[[owes("1"), { decision: "true" }], "odd"],
		[[yes, { decision: true, context: { obligations: [own("z", "z")] } }], "obligated"],
		[[yes], "odd"],
	] as const) {
		reply = { json: { evaluations }, id: "e" };
		assert.equal((await no(c.enforceAll(questions, act))).kind, kind);
	}
	assert.deepEqual([act.mock.callCount(), x.mock.callCount()], [1, 1]);
	const forgone = asked.find(({ path }) => path === "/v1/decisions/e.0/obligations");
	assert.match(forgone?.body.obligations[0].detail, /denied for another reason/);
});

test("changes that handlers promised apply to the result of enforceAll", async (t) => {
	const { client } = await pdp(t, ({ path }) =>
		path.startsWith("/v1/") ? { status: 204 } : { json: { evaluations: [owes("1"), owes("2")] } },
	);
	const c = client({
		handlers: {
			x:
				({ id }) =>
				(result) =>
					`${result}-${id}`,
		},
	});
	assert.equal(await c.enforceAll(questions, () => "r"), "r-1-2");
});

test("an array that changes while it is read is asked about as it was, or not at all", async (t) => {
	const { client, asked } = await pdp(t, () => ({ json: { evaluations: [{ decision: true }] } }));
	let reads = 0;
	const shrinking = new Proxy([question], { get: (of, name) => (name === "length" ? (reads++ === 0 ? 1 : 0) : Reflect.get(of, name)) });
	await client().enforceAll(shrinking, (permits) => assert.equal(permits.length, 1));
	assert.equal(asked[0]?.body.evaluations.length, 1);
	const emptied = [question, question];
	const first = Object.defineProperty({ ...question }, "context", { enumerable: true, get: () => void emptied.splice(0) });
	emptied[0] = first;
	assert.equal((await no(client().enforceAll(emptied, () => {}))).kind, "not_asked");
	assert.equal(asked.length, 1);
});
