import assert from "node:assert/strict";
import { test } from "node:test";
import type { EnforceOptions, Task } from "../src/index.js";
import { Denied, Undecided } from "../src/index.js";
import { guardTool } from "../src/mcp.js";
import { type Asked, adopting, no, pdp, question, type Reply } from "./pdp.js";

type T = Parameters<typeof pdp>[0];

const later = () => new Date(Date.now() + 60_000).toISOString();
const approval = () => ({ id: "ap1", approved_until: later(), signed: { by: ["mia"] } });
const offer = () => ({
	reason: "approval_required",
	evaluation_id: "d1",
	evaluated_at: "2026-01-02T15:04:05Z",
	access_request: { expires_at: later(), binding_token: "bt", template: "lead" },
});

/** A PDP where people decide, in some steps: each is the status of a look. */
async function people(
	t: T,
	looks: (object | undefined)[],
	more: { denial?: () => object; used?: (a: Asked) => Reply; task?: object; filed?: Reply } = {},
) {
	let n = 0;
	const left = [...looks];
	const p = await pdp(t, (asked): Reply => {
		if (asked.path === "/access/v1/requests")
			return more.filed ?? { status: 202, json: { task: taskOf(asked, { status: "pending", ...more.task }) } };
		if (asked.path.startsWith("/tasks/")) {
			const look = left.length > 1 ? left.shift() : left[0];
			if (look === undefined) return { status: 503 };
			const { result, ...task } = look as { result?: object };
			return { json: { task: taskOf(asked, task), ...(result && { result }) } };
		}
		if (asked.body.context.approval)
			return more.used?.(asked) ?? { json: { decision: true, context: { approval: { id: "ap1" } } }, id: `d${++n}` };
		return { json: { decision: false, context: (more.denial ?? offer)() }, id: "d1" };
	});
	const taskOf = ({ headers }: Asked, task: object) => ({
		id: "t1",
		status_endpoint: `http://${headers.host}/tasks/t1?sig=x`,
		expires_at: later(),
		...task,
	});
	return p;
}

const approved = () => ({ status: "approved", result: { mode: "reevaluate", approval: approval() } });

test("a wait asks people, and asks the PDP again with what they gave", async (t) => {
	const p = await people(t, [approved()]);
	const kept: Task[] = [];
	const wait = { timeout: 60_000, justification: "it burns", keep: (task: Task) => void kept.push(task) };
	const c = p.client({ handlers: { x: () => {} } });
	const until = await c.enforce({ ...question, context: { a: 1 } }, (permit) => permit.approvedUntil, { wait });
	assert.ok(until && until.getTime() > Date.now());
	const [first, filed, look, again] = p.asked;
	assert.equal(p.asked.length, 4);
	assert.deepEqual(first?.body.context, { a: 1, ...adopting("custom") });
	assert.deepEqual(filed?.body, {
		...question,
		context: { a: 1, ...adopting("custom"), business_justification: "it burns" },
		denial: { evaluation_id: "d1", evaluated_at: "2026-01-02T15:04:05Z", reason: "approval_required", ...filed?.body.denial },
	});
	assert.deepEqual(Object.keys(filed?.body.denial).sort(), [
		"binding_token",
		"evaluated_at",
		"evaluation_id",
		"expires_at",
		"reason",
		"template",
	]);
	assert.match(String(filed?.headers["idempotency-key"]), /^[\w-]{43}$/);
	assert.equal(look?.method, "GET");
	assert.equal(look?.path, "/tasks/t1?sig=x&wait=20s");
	assert.equal(again?.body.context.approval.signed.by[0], "mia");
	assert.deepEqual({ ...again?.body.context, approval: 0 }, { a: 1, ...adopting("custom"), approval: 0 });
	assert.equal(kept.length, 1);
	assert.deepEqual(Object.keys(kept[0] ?? {}).sort(), ["expires_at", "id", "pdp", "status_endpoint", "version"]);
	await p.client().authorize(question, { wait: { timeout: 60_000, join: true } });
	assert.equal(p.asked[5]?.headers["idempotency-key"], undefined);
});

test("without a wait it is a no that says so", async (t) => {
	const p = await people(t, [approved()]);
	const error = await no(p.client().authorize(question));
	assert.deepEqual([error.kind, error.reason, p.asked.length], ["denied", "approval_required", 1]);
	assert.match(error.remedy, /option wait/);
});

test("a wait that runs out leaves the task, with which another one goes on", async (t) => {
	const p = await people(t, [{ status: "pending" }, approved()]);
	const c = p.client();
	const error = await no(c.authorize(question, { wait: 1000 })); // the next look would come too late
	assert.ok(error instanceof Denied);
	assert.deepEqual([error.kind, error.reason, error.task?.id, error.decisionId], ["not_approved", "approval_pending", "t1", "d1"]);
	const task = JSON.parse(JSON.stringify(error.task)) as Task;
	const asked = p.asked.length;
	await c.authorize(question, { wait: { timeout: 60_000, resume: task } });
	assert.deepEqual(
		p.asked.slice(asked).map(({ path }) => path),
		["/tasks/t1?sig=x&wait=20s", "/access/v1/evaluation"],
	);
	const damaged = [
		{ ...task, version: 2 },
		{ ...task, id: "" },
		{ ...task, more: 1 },
		{ ...task, expires_at: "soon" },
		{ ...task, pdp: "http://127.0.0.1:1" },
		{},
		null,
	];
	for (const resume of damaged) {
		assert.equal((await no(c.authorize(question, { wait: { timeout: 60_000, resume: resume as Task } }))).kind, "not_asked");
	}
	const elsewhere = { ...task, status_endpoint: "http://127.0.0.1:1/tasks/t1" };
	assert.equal((await no(c.authorize(question, { wait: { timeout: 60_000, resume: elsewhere } }))).kind, "not_asked");
	assert.equal(p.asked.length, asked + 2);
});

test("a guarded tool of MCP says that it waits", async (t) => {
	const p = await people(t, [{ status: "pending" }]);
	const push = guardTool(
		p.client(),
		() => question,
		() => assert.fail("it ran"),
		{ wait: 0 },
	);
	await assert.rejects(push({}, {}), { message: "Access denied: waiting for approval; try again later" });
	assert.deepEqual(
		p.asked.filter(({ path }) => path.endsWith("/requests")).map(({ headers }) => headers["idempotency-key"]),
		[undefined],
	);
});

test("a failure that says nothing of people's decision does not end the wait, and its time does", async (t) => {
	const down = await people(t, [undefined]);
	const look = await no(down.client().authorize(question, { wait: 1000 }));
	assert.deepEqual([look.kind, look.reason, look.task?.id], ["not_approved", "approval_pending", "t1"]);
	const used = () => ({ json: { decision: false, context: { reason: "grant_pending", retry_after: 1 } }, id: "d2" });
	const late = await people(t, [approved()], { used });
	const use = await no(late.client().authorize(question, { wait: 1000 }));
	assert.deepEqual([use.kind, use.reason, use.decisionId], ["not_approved", "approval_pending", "d2"]);
	const gone = await people(t, [{ status: "pending" }], { filed: { status: 503 } });
	assert.equal((await no(gone.client().authorize(question, { wait: 1000 }))).kind, "not_approved");
	assert.equal(gone.asked.length, 2);
});

test("a caller can give up the wait", async (t) => {
	const giveUp = new AbortController();
	const p = await people(t, [{ status: "pending" }]);
	const options: EnforceOptions = { wait: { timeout: 60_000, keep: () => giveUp.abort() }, signal: giveUp.signal };
	const error = await no(p.client().authorize(question, options));
	assert.ok(error instanceof Undecided);
	assert.deepEqual([error.kind, error.task?.id], ["cancelled", "t1"]);
	const own = new Error("mine");
	const kept = await no(p.client().authorize(question, { wait: { timeout: 60_000, keep: () => Promise.reject(own) } }));
	assert.deepEqual([kept.kind, kept.task?.id, kept.cause], ["cancelled", "t1", own]);
});

test("what people decided otherwise is a no", async (t) => {
	const until = later();
	const ends: [object, string][] = [
		[{ status: "denied", approvals: [{ id: "1", reason: "no" }] }, "not_approved"],
		[{ status: "expired" }, "not_approved"],
		[{ status: "Approved", result: { mode: "reevaluate", approval: approval() } }, "not_approved"],
		[{ status: "denied", result: { mode: "reevaluate", approval: approval() } }, "not_approved"],
		[{ status: "needs-info" }, "not_approved"],
		[{ status: "needs-info", result: { mode: "reevaluate", approval: approval() } }, "not_approved"],
		[{ status: "approved" }, "not_approved"],
		[{ status: "approved", result: { mode: "token", approval: approval() } }, "not_approved"],
		[{ status: "approved", result: { mode: "reevaluate", approval: { id: "", approved_until: until } } }, "odd"],
		[{ status: "approved", result: { mode: "reevaluate", approval: { id: "ap1", approved_until: "soon" } } }, "odd"],
		[
			{ status: "approved", result: { mode: "reevaluate", approval: { id: "ap1", approved_until: "2020-01-01T00:00:00Z" } } },
			"not_approved",
		],
		[{ id: "t2", ...approved() }, "odd"],
		[{ ...approved(), items: [] }, "odd"],
		[{ status: "" }, "odd"],
	];
	for (const [look, kind] of ends) {
		const p = await people(t, [look]);
		const act = t.mock.fn();
		const error = await no(p.client().enforce(question, act, { wait: 60_000 }));
		assert.deepEqual([error.kind, act.mock.callCount()], [kind, 0], JSON.stringify(look));
		assert.ok(!p.asked.some(({ body }) => body?.context?.approval));
	}
});

test("an offer or a task that is odd is followed nowhere", async (t) => {
	const request = { expires_at: later(), binding_token: "bt" };
	const offers: [object, string][] = [
		[{ reason: "approval_required" }, "denied"],
		[{ reason: "approval_required", access_request: { ...request, refused: "too many" } }, "denied"],
		[{ reason: "approval_required", access_request: request, next_action: "none" }, "denied"],
		[{ reason: "policy_denied", access_request: request }, "denied"],
		[{ reason: "approval_required", access_request: "x" }, "odd"],
		[{ reason: "approval_required", access_request: { binding_token: "bt" } }, "odd"],
		[{ reason: "approval_required", access_request: { expires_at: later() } }, "odd"],
		[{ reason: "approval_required", access_request: { ...request, endpoint: "http://127.0.0.1:1/access/v1/requests" } }, "not_asked"],
		[{ reason: "approval_required", access_request: { ...request, endpoint: "/access/v1/requests" } }, "not_asked"],
	];
	for (const [context, kind] of offers) {
		const p = await people(t, [approved()], { denial: () => context });
		const error = await no(p.client().authorize(question, { wait: 60_000 }));
		assert.deepEqual([error.kind, p.asked.length], [kind, 1], JSON.stringify(context));
		assert.equal(
			error.remedy.includes("permission request"),
			kind === "denied" && "reason" in context && context.reason === "approval_required",
		);
		assert.equal(error.remedy.includes("public_url"), JSON.stringify(context).includes("http://127.0.0.1:1/"));
	}
	const filed: [Reply, string][] = [
		[{ status: 200, json: { task: { id: "t1", status: "approved", status_endpoint: "x" } } }, "odd"],
		[{ status: 202, json: { task: { id: "t1", status: "pending" } } }, "odd"],
		[{ status: 202, json: { task: { id: "t1", status: "pending", status_endpoint: "https://elsewhere.example/t1" } } }, "not_asked"],
		[{ status: 202, json: {} }, "odd"],
		[{ status: 403 }, "refused"],
	];
	for (const [reply, kind] of filed) {
		const p = await people(t, [approved()], { filed: reply });
		const error = await no(p.client().authorize(question, { wait: 60_000 }));
		assert.deepEqual([error.kind, p.asked.length], [kind, 2]);
	}
});

test("a schema of a submission that may require something is not filled in", async (t) => {
	for (const [tenant, at, kind] of [
		[undefined, "/access/v1/requests/schema", ""],
		["acme", "/access/v1/requests/schema", ""],
		[undefined, "/schemas/finance", "not_asked"],
		["acme", "/tenants/acme/access/v1/requests/schema", "not_asked"],
	] as const) {
		let base = "";
		const denial = () => {
			const { access_request, ...more } = offer();
			const endpoint = `${base}${tenant ? `/tenants/${tenant}` : ""}/access/v1/requests`;
			return { ...more, access_request: { ...access_request, endpoint, request_schema_url: base + at } };
		};
		const task = { status: "approved", result: { mode: "reevaluate", approval: approval() } };
		const p = await pdp(t, (asked): Reply => {
			base = `http://${asked.headers.host}`;
			if (asked.path.endsWith("/requests")) {
				const { result, ...done } = task;
				return { status: 201, json: { task: { id: "t1", status_endpoint: `${base}/tasks/t1`, ...done }, result } };
			}
			return { json: asked.body.context.approval ? { decision: true } : { decision: false, context: denial() }, id: "d1" };
		});
		const c = p.client(tenant ? { tenant } : {});
		if (kind === "") {
			await c.authorize(question, { wait: 60_000 });
			assert.equal(p.asked.length, 3);
			continue;
		}
		const error = await no(c.authorize(question, { wait: 60_000 }));
		assert.deepEqual([error.kind, p.asked.length], [kind, 1], at);
		assert.match(error.remedy, /request_schema_url/);
	}
});

test("people are asked once more if their approval ended before its use, and then no more", async (t) => {
	const used = () => ({ json: { decision: false, context: { ...offer(), reason: "approval_expired" } }, id: "d2" });
	const p = await people(t, [approved()], { used });
	const error = await no(p.client().authorize(question, { wait: 60_000 }));
	assert.deepEqual([error.kind, error.reason], ["denied", "approval_expired"]);
	assert.equal(p.asked.filter(({ path }) => path === "/access/v1/requests").length, 2);
});

test("an answer that is lost after a use is a use that may be gone", async (t) => {
	const p = await people(t, [approved()], { used: () => (response) => void response.destroy() });
	const error = await no(p.client({ retries: 2 }).authorize(question, { wait: 60_000 }));
	assert.deepEqual([error.kind, error.spent], ["unreachable", true]);
	assert.match(error.remedy, /may be gone/);
	assert.equal(p.asked.filter(({ body }) => body?.context?.approval).length, 1);
});

test("an allow that rests on an approval that has ended is a no", async (t) => {
	for (const [approved_until, kind] of [
		["2020-01-01T00:00:00Z", "not_approved"],
		["soon", "odd"],
	]) {
		const p = await people(t, [approved()], {
			used: () => ({ json: { decision: true, context: { approval: { id: "ap1", approved_until } } } }),
		});
		assert.equal((await no(p.client().authorize(question, { wait: 60_000 }))).kind, kind);
	}
});

test("a wait that cannot be is not asked", async (t) => {
	const p = await people(t, [approved()]);
	const wait = 60_000;
	const calls = [
		p.client({ handlers: { approval_required: () => {} } }).authorize(question, { wait }),
		p.client().authorize({ ...question, context: { approval: { id: "x" } } }, { wait }),
		p.client().authorize({ ...question, context: { approval_id: "x" } }, { wait }),
		p.client().authorize({ ...question, context: { business_justification: "x" } }, { wait: { timeout: wait, justification: "y" } }),
		p.client().authorize(question, { wait: Number.NaN }),
		p.client().authorize(question, { wait: -1 }),
		p.client().authorize(question, { wait: "60000" as never }),
		p.client().authorize(question, { wait: { timeout: "60000" as never } }),
		p.client().authorize(question, { wait: null as never }),
		p.client().authorize(question, { wait: { timeout: wait, justification: "\ud800" } }),
		p.client().authorize(question, { wait: { timeout: wait, justification: { a: 1 } as never } }),
		p.client().authorize(question, { wait: { timeout: wait, keep: "x" as never } }),
	];
	for (const call of calls) assert.equal((await no(call)).kind, "not_asked");
	assert.equal(p.asked.length, 0);
});
