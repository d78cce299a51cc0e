import assert from "node:assert/strict";
import { test } from "node:test";
import { readAnswer } from "../src/answer.js";
import { Denied, type Handlers } from "../src/index.js";
import { discharge } from "../src/obligations.js";
import { adopting, no, own, pdp, question, type Reply } from "./pdp.js";

const owes = (...all: { id: string; type: string; properties?: object }[]) => {
	const obligations = all.map(({ id, type, properties }) => own(id, type, properties));
	return { json: { decision: true, context: { obligations } }, id: "d1" };
};

/** A PDP that answers so, takes receipts, and keeps them. */
async function receiving(t: Parameters<typeof pdp>[0], answer: Reply) {
	const p = await pdp(t, ({ path }) => (path.startsWith("/v1/decisions/") ? { status: 204 } : answer));
	const receipts = () => p.asked.filter(({ path }) => path.startsWith("/v1/decisions/")).map(({ path, body }) => [path, body.obligations]);
	return { ...p, receipts };
}

test("obligations are discharged in order before the act, and the PDP is told", async (t) => {
	const { client, asked, receipts } = await receiving(
		t,
		owes({ id: "1", type: "b", properties: { to: "x" } }, { id: "2", type: "a", properties: { to: "y" } }),
	);
	const order: unknown[] = [];
	const handlers: Handlers = {
		a: async ({ type, properties }, about) => {
			order.push([type, properties, about.question.resource.id, about.signal.aborted]);
		},
		b: ({ type, properties }) => {
			order.push([type, properties]);
		},
	};
	await client({ handlers }).enforce(question, () => {
		order.push(receipts());
	});
	assert.deepEqual(order, [
		["b", { to: "x" }],
		["a", { to: "y" }, "1", false],
		[
			[
				"/v1/decisions/d1/obligations",
				[
					{ id: "1", status: "discharged" },
					{ id: "2", status: "discharged" },
				],
			],
		].map(([path, all]) => [[path, all]])[0],
	]);
	assert.deepEqual(asked[0]?.body.context, adopting("custom"));
});

test("one that is not discharged is a no, and the others are tried all the same", async (t) => {
	const handled: string[] = [];
	const handlers: Handlers = {
		ok: ({ id }) => {
			handled.push(id);
		},
		fails: () => {
			throw new Error("the text of a handler");
		},
		rejects: () => Promise.reject(new Error("x")),
		odd: () => true as never,
	};
	const last = { id: "last", type: "ok" };
	const cases: [Parameters<typeof owes>, string][] = [
		[[{ id: "1", type: "fails" }, last], "its handler failed"],
		[[{ id: "1", type: "rejects" }, last], "its handler failed"],
		[[{ id: "1", type: "odd" }, last], "its handler failed"],
		[[{ id: "1", type: "none" }, last], "there is no handler for its type"],
		[[{ id: "1", type: "toString" }, last], "there is no handler for its type"],
		[[{ id: "1", type: "ok" }, { id: "1", type: "ok", properties: { a: 1 } }, last], "another obligation has its id"],
		[[{ id: "", type: "ok" }, last], "it is malformed, or of an unknown type"],
	];
	for (const [obligations, fault] of cases) {
		const { client, receipts } = await receiving(t, owes(...obligations));
		const act = t.mock.fn();
		const error = await no(client({ handlers }).enforce(question, act));
		assert.ok(error instanceof Denied && error.kind === "obligated", fault);
		assert.equal(act.mock.callCount(), 0);
		assert.match(error.message, new RegExp(fault));
		assert.ok(!error.message.includes("the text of a handler"));
		assert.equal(handled.at(-1), "last");
		const [[, told] = []] = receipts() as [string, { id: string; status: string; detail?: string }[]][];
		assert.deepEqual(told?.at(-1), { id: "last", status: "discharged" });
		const named = obligations[0]?.id !== "";
		assert.deepEqual(told?.[0], named ? { id: "1", status: "failed", detail: fault } : { id: "last", status: "discharged" });
	}
});

test("by July's draft the native form is read, also of a deny, which stays one", async (t) => {
	const handled: object[] = [];
	const handlers: Handlers = {
		x: (o) => {
			handled.push(o);
		},
		y: (o) => {
			handled.push(o);
		},
	};
	for (const decision of [true, false]) {
		const details = [{ id: "7", type: "y", properties: { a: 1 } }];
		const { client, receipts } = await receiving(t, {
			json: { decision, obligations: { y: true, x: true }, obligation_details: details },
			id: "d1",
		});
		handled.length = 0;
		const result = await client({ handlers, obligations: "july" })
			.enforce(question, () => "done")
			.catch((e) => e.kind);
		assert.equal(result, decision ? "done" : "denied");
		assert.deepEqual(handled, [
			{ id: "x", type: "x", properties: {} },
			{ id: "7", type: "y", properties: { a: 1 } },
		]);
		assert.equal(receipts().length, 1);
	}
	const { client } = await receiving(t, { json: { decision: false, obligations: { z: true } }, id: "d1" });
	assert.equal((await no(client({ obligations: "july" }).authorize(question))).kind, "obligated");
});

test("evaluate discharges nothing, so an allow with obligations is a no", async (t) => {
	const { client, asked } = await receiving(t, owes({ id: "1", type: "x" }));
	const x = t.mock.fn(() => {});
	const kind = await client({ handlers: { x } }).evaluate(question, { allow: () => "yes", deny: (e) => e.kind });
	assert.deepEqual([kind, x.mock.callCount(), asked.length], ["obligated", 0, 1]);
	assert.equal(asked[0]?.body.context, undefined);
});

test("a change is applied to the result before it goes out, and the PDP is told then", async (t) => {
	const { client, receipts } = await receiving(t, owes({ id: "1", type: "redact" }, { id: "2", type: "redact" }));
	const handlers: Handlers = {
		redact:
			({ id }) =>
			async (result) =>
				`${result}-${id}`,
	};
	const result = await client({ handlers }).enforce(question, () => {
		assert.deepEqual(receipts(), []);
		return "secret";
	});
	assert.equal(result, "secret-1-2");
	assert.equal(receipts().length, 1);
	const error = await no(client({ handlers }).authorize(question));
	assert.equal(error.kind, "obligated");
	assert.match(error.message, /there is none/);
});

test("a change that breaks withholds the result, and so does an act that fails", async (t) => {
	const { client, receipts } = await receiving(t, owes({ id: "1", type: "redact" }, { id: "2", type: "note" }));
	const redact = () => () => {
		throw new Error("it breaks on secret");
	};
	const error = await no(client({ handlers: { redact, note: () => {} } }).enforce(question, () => "secret"));
	assert.equal(error.kind, "obligated");
	assert.ok(!error.message.includes("secret"));
	const told = [
		{ id: "1", status: "failed", detail: "its handler promised it, and it was not done" },
		{ id: "2", status: "discharged" },
	];
	assert.deepEqual(receipts()[0]?.[1], told);
	const own = new Error("mine");
	const failing = client({ handlers: { redact, note: () => {} } }).enforce(question, () => Promise.reject(own));
	assert.equal(await no(failing), own);
	assert.deepEqual(receipts()[1]?.[1], told);
});

test("a caller that gives up gets a no, and the rest is discharged all the same", async (t) => {
	const { client, receipts } = await receiving(t, owes({ id: "1", type: "x" }, { id: "2", type: "y" }));
	const giveUp = new AbortController();
	const handlers: Handlers = {
		x: () => {
			giveUp.abort();
			return new Promise<void>(() => {}); // it does not heed the signal
		},
		y: (_, { signal }) => {
			assert.equal(signal.aborted, false);
		},
	};
	const act = t.mock.fn();
	const error = await no(client({ handlers }).enforce(question, act, { signal: giveUp.signal }));
	assert.deepEqual([error.kind, act.mock.callCount()], ["obligated", 0]);
	assert.deepEqual(receipts()[0]?.[1], [
		{ id: "1", status: "failed", detail: "the decision was no longer waited for" },
		{ id: "2", status: "discharged" },
	]);
});

test("a receipt changes nothing, and a PDP that takes none is left alone", async (t) => {
	for (const [status, sent] of [
		[404, 1],
		[405, 1],
		[501, 1],
		[500, 2],
		[400, 2],
		[409, 2],
	] as const) {
		const p = await pdp(t, ({ path }) => (path.startsWith("/v1/") ? { status } : owes({ id: "1", type: "x" })));
		const c = p.client({ handlers: { x: () => {} } });
		await c.authorize(question);
		await c.authorize(question);
		assert.equal(p.asked.length, 2 + sent, `${status}`);
	}
	const p = await pdp(t, () => owes({ id: "1", type: "x" }));
	await p.client({ handlers: { x: () => {} }, receipts: false }).authorize(question);
	assert.equal(p.asked.length, 1);
	const unnamed = await pdp(t, () => ({ json: owes({ id: "1", type: "x" }).json }));
	await unnamed.client({ handlers: { x: () => {} } }).authorize(question);
	assert.equal(unnamed.asked.length, 1);
});

test("obligations of an answer that is odd are discharged, and it stays a no", async (t) => {
	const { client } = await receiving(t, {
		json: { decision: true, allow: true, context: { possible: true, obligations: [own("1", "x")] } },
	});
	const x = t.mock.fn(() => {});
	const error = await no(client({ handlers: { x } }).authorize(question));
	assert.deepEqual([error.kind, x.mock.callCount()], ["odd", 1]);
});

test("many obligations take no more time for each than few do", async () => {
	const types = Array.from({ length: 100_000 }, (_, n) => `t${n}`);
	const details = types.map((type) => ({ id: `of ${type}`, type })).reverse();
	const named = Object.fromEntries(types.map((type) => [type, true]));
	const { obligations, failure } = readAnswer({ decision: true, obligations: named, obligation_details: details });
	assert.deepEqual([obligations.length, failure?.kind], [100_000, "obligated"]);
	const { outcomes } = await discharge(obligations, new Map(), question, { signal: undefined, changes: false });
	assert.equal(outcomes.filter(({ fault }) => fault === "there is no handler for its type").length, 100_000);
});

test("receipts that another process would take stop no others", async (t) => {
	let decisions = 0;
	const p = await pdp(t, ({ path }) => {
		if (path.startsWith("/v1/decisions/")) return { status: path.includes("/d1/") ? 204 : 404 };
		return { ...owes({ id: "1", type: "a" }), id: `d${++decisions}` };
	});
	const client = p.client({ handlers: { a: () => {} }, breaker: { failures: 2, coolDown: 60_000 } });
	for (let n = 0; n < 5; n++) await client.authorize(question);
	assert.equal(p.asked.filter(({ path }) => path.startsWith("/v1/decisions/")).length, 5);
});

test("handlers are shown one copy of the question, which none can change", async (t) => {
	const { client } = await receiving(t, owes({ id: "1", type: "reads" }, { id: "2", type: "reads" }, { id: "3", type: "writes" }));
	const seen = new Set<unknown>();
	const handlers: Handlers = {
		reads: (_, about) => void seen.add(about.question),
		writes: (_, about) => {
			about.question.resource.id = "2";
		},
	};
	const error = await no(client({ handlers }).authorize(question));
	assert.deepEqual([error.kind, seen.size, question.resource.id], ["obligated", 1, "1"]);
	assert.match(error.message, /"3" of type "writes": its handler failed;/);
});
