import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { type AddressInfo, createServer } from "node:net";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { AuthorizationError, Client, type ClientOptions, Denied, type Question, Undecided } from "../src/index.js";
import { sleep } from "../src/transport.js";
import { adopting, no, own, pdp, question, type Reply } from "./pdp.js";

const allow = '{"decision":true}';
const key = "psk_a-credential";

test("a yes runs the act, and a permit says what it rests on", async (t) => {
	const { client, asked } = await pdp(t, () => ({ json: { decision: true, context: { a: 1 } }, id: "d1" }));
	const c = client({ credential: key, tenant: "acme" });
	const result = await c.enforce(question, (permit) => {
		assert.equal(permit.decisionId, "d1");
		assert.equal(permit.context.a, 1);
		assert.equal(permit.requestId, asked[0]?.headers["x-request-id"]);
		return "done";
	});
	assert.equal(result, "done");
	const [one] = asked;
	assert.equal(one?.path, "/tenants/acme/access/v1/evaluation");
	assert.equal(one?.headers.authorization, `Bearer ${key}`);
	assert.equal(one?.headers["accept-encoding"], "identity");
	assert.deepEqual(one?.body, { ...question, context: adopting() });
	assert.equal(await c.evaluate(question, { allow: () => 1, deny: () => 2 }), 1);
	assert.deepEqual(asked[1]?.body, question);
	assert.equal((await c.authorize(question)).decisionId, "d1");
});

test("a no is an error with reason and remedy, and nothing acts", async (t) => {
	const context = { reason: "approval_required", reason_user: "ask your lead" };
	const { client } = await pdp(t, () => ({ json: { decision: false, context }, id: "d2" }));
	const act = t.mock.fn();
	const error = await no(client().enforce(question, act));
	assert.equal(act.mock.callCount(), 0);
	assert.ok(error instanceof Denied && error instanceof AuthorizationError);
	const { kind, status, reason, reasonUser, decisionId, spent } = error;
	assert.deepEqual(
		{ kind, status, reason, reasonUser, decisionId, spent },
		{ kind: "denied", status: 403, reason: "approval_required", reasonUser: "ask your lead", decisionId: "d2", spent: false },
	);
	assert.match(error.remedy, /option wait/);
	assert.ok(error.message.endsWith(error.remedy) && !error.message.includes("\n"));
	const branch = await client().evaluate(question, { allow: () => "yes", deny: (e) => e.kind });
	assert.equal(branch, "denied");
	const unsupported = { reason: "obligation_unsupported", required_obligations: ["log", "redact"] };
	const other = await pdp(t, () => ({ json: { decision: false, context: unsupported } }));
	assert.match((await no(other.client().authorize(question))).remedy, /handlers for log, redact$/);
	const typo = await pdp(t, () => ({ json: { decision: false, context: { reason: "schema_mismatch" } } }));
	assert.match((await no(typo.client().authorize(question))).remedy, /X-Explain/);
});

test("an error of a branch or of the act is passed on as it is", async (t) => {
	const { client } = await pdp(t, () => allow);
	const own = new Error("mine");
	const throwing = () => {
		throw own;
	};
	const deny = t.mock.fn();
	assert.equal(await no(client().evaluate(question, { allow: throwing, deny })), own);
	assert.equal(deny.mock.callCount(), 0);
	assert.equal(await no(client().enforce(question, throwing)), own);
	for (const branches of [undefined, {}, { allow: () => 1 }, { deny: () => 1 }]) {
		assert.throws(() => client().evaluate(question, branches as never), TypeError);
		assert.throws(() => client().evaluateBatch([question], branches as never), TypeError);
	}
	assert.throws(() => client().enforce(question, undefined as never), TypeError);
	assert.throws(() => client().enforceAll([question], undefined as never), TypeError);
});

test("only an answer that says yes in every respect is one", async (t) => {
	let reply: Reply = "";
	const { client } = await pdp(t, () => reply);
	const odd: { [name: string]: Reply } = {
		nothing: "",
		"an array": "[true]",
		true: "true",
		null: "null",
		"no decision": "{}",
		"a number": '{"decision":1}',
		"a text": '{"decision":"true"}',
		"another case": '{"Decision":true}',
		"an older form": '{"allow":true}',
		both: '{"decision":true,"allow":false}',
		twice: '{"decision":false,"decision":true}',
		"twice, deep in it": '{"decision":true,"context":{"a":[{"b":1,"b":2}]}}',
		"a text that ends early": '{"decision":true',
		"a text with more": '{"decision":true}{}',
		possible: '{"decision":true,"context":{"possible":true}}',
		"possible beside": '{"decision":true,"possible":false}',
		"required obligations": '{"decision":true,"context":{"required_obligations":["x"]}}',
		"a context that is none": '{"decision":true,"context":[]}',
		"details without obligations": '{"decision":true,"obligation_details":[{"id":"1","type":"x"}]}',
		"details of another": '{"decision":true,"obligations":{"y":true},"obligation_details":[{"id":"1","type":"x"}]}',
		"two arrays": '{"decision":true,"obligations":[{"id":"1","type":"x"}],"obligation_details":[{"id":"2","type":"y"}]}',
		"no UTF-8": { body: new Uint8Array([...Buffer.from('{"decision":true,"x":"'), 0xff, ...Buffer.from('"}')]) },
		"204": { status: 204 },
		"201": { status: 201, body: allow },
		"302": { status: 302, headers: { Location: "/access/v1/evaluation" }, body: allow },
		"307": { status: 307, headers: { Location: "http://127.0.0.1:1/" }, body: allow },
		"another type": { headers: { "Content-Type": "text/html" }, body: allow },
		"a type alike": { headers: { "Content-Type": "application/json-seq" }, body: allow },
		"two types": { headers: { "Content-Type": "application/json, text/html" }, body: allow },
		gzip: { headers: { "Content-Encoding": "gzip" }, body: gzipSync(allow) },
		"an unknown coding": { headers: { "Content-Encoding": "x" }, body: allow },
		"another request's answer": { headers: { "X-Request-ID": "x" }, body: allow },
		"too much": `{"decision":true,"x":"${"x".repeat(1 << 20)}"}`,
	};
	for (const [name, one] of Object.entries(odd)) {
		reply = one;
		const error = await no(client({ handlers: { x: () => {}, y: () => {} } }).authorize(question));
		assert.ok(error instanceof Undecided, name);
		assert.equal(error.kind, "odd", name);
		assert.equal(error.status, 503);
	}
	for (const text of [
		'{"decision":true,"obligations":"x"}',
		'{"decision":true,"context":{"obligations":[{"id":"1"}]}}',
		'{"decision":true,"obligations":{"x":false}}',
		'{"decision":true,"obligations":["x"]}',
		'{"decision":true,"obligations":[{"id":"1","type":"x","to":"a","properties":{"to":"b"}}]}',
		'{"decision":true,"obligations":[{"id":"1","type":"x"}],"obligation_details":[{"id":"2","type":"y"}]}',
	]) {
		reply = text;
		const july = client({ handlers: { x: () => {}, y: () => {} }, obligations: "july" });
		assert.equal((await no(july.authorize(question))).kind, "odd", text);
	}
	for (const [name, text] of Object.entries({
		bad_item: '{"decision":true,"context":{"error":{"status":400,"message":"no such type"}}}',
		obligated: '{"decision":true,"context":{"obligations":[{"id":"1","type":"z","properties":{}}]}}',
		denied: '{"decision":false,"context":{"possible":true}}',
	})) {
		reply = text;
		assert.equal((await no(client().authorize(question))).kind, name);
	}
	for (const text of [
		'{"decision":true,"context":null,"error":null}',
		' {"decision" : true, "context": {"required_obligations": null}, "new": [{}]} ',
		'{"decision":true,"context":{"possible":"a member of another PDP"}}',
	]) {
		reply = text;
		await client().authorize(question);
	}
	for (const text of [
		'{"decision":true,"context":null,"obligations":null}',
		'{"decision":true,"obligations": [], "context": {"obligations": {}}}',
	]) {
		reply = text;
		await client({ obligations: "july" }).authorize(question);
	}
	reply = { headers: { "Content-Type": 'Application/JSON ; charset="utf-8"' }, body: allow };
	await client().authorize(question);
});

test("a status says who is at fault, and the PDP's text is one line without the credential", async (t) => {
	let reply: Reply = "";
	const { client } = await pdp(t, () => reply);
	const kinds = {
		400: "refused",
		401: "refused",
		403: "refused",
		404: "refused",
		413: "refused",
		429: "unavailable",
		500: "unavailable",
		503: "unavailable",
	};
	for (const [status, kind] of Object.entries(kinds)) {
		reply = { status: Number(status), headers: { "Retry-After": "7" }, json: { detail: `no\nmore of ${key} ${"x".repeat(1000)}` } };
		const error = await no(client({ credential: key }).authorize(question));
		assert.deepEqual([error.kind, error.pdpStatus, error.retryAfter], [kind, Number(status), 7]);
		assert.match(error.message, /no more of … x+…; /);
		assert.ok(!JSON.stringify(error).includes(key) && !error.message.includes(key) && !`${error.stack}`.includes(key));
	}
	const quoting = { reason: `not by ${key}`, reason_user: key, echoed: [{ [key]: key }], error: null };
	for (const one of [
		{ decision: false, context: quoting },
		{ decision: true, context: { ...quoting, error: { status: 400, message: key } } },
	]) {
		reply = { json: one };
		const error = await no(client({ credential: () => key }).authorize(question));
		assert.ok(!JSON.stringify(error).includes(key) && !error.message.includes(key), error.message);
		assert.deepEqual([error.reason, error.reasonUser], ["not by …", "…"]);
		const inBatch = {
			allow: () => {},
			deny: (e: Error) => assert.ok(!JSON.stringify(e).includes(key) && !e.message.includes(key), e.message),
		};
		reply = { json: { evaluations: [one] } };
		await client({ credential: key }).evaluateBatch([question], inBatch);
	}
	reply = { status: 429, headers: { "Retry-After": "soon" }, body: "not json" };
	assert.equal((await no(client().authorize(question))).retryAfter, undefined);
});

test("the name of a decision does not repeat the credential", async (t) => {
	const { client } = await pdp(t, ({ headers }) => ({ json: { decision: false }, id: `for ${headers.authorization}` }));
	assert.equal((await no(client({ credential: key }).authorize(question))).decisionId, "for Bearer …");
});

test("no error repeats a capability that the question shows by itself", async (t) => {
	const { client } = await pdp(t, ({ body: { context } }) => {
		const { token, proof } = context.capability;
		return { status: 400, json: { detail: `no ${token} or ${proof}` } };
	});
	const capability = { token: "eyJ.a.token", proof: "eyJ.a.proof" };
	assert.match((await no(client().authorize({ ...question, context: { capability } }))).message, /: no … or …;/);
});

test("a signal that is none is not asked with", async (t) => {
	const { client, asked } = await pdp(t, () => allow);
	const options = { signal: new AbortController() as never };
	const c = client();
	for (const call of [c.authorize(question, options), c.enforceAll([question], () => {}, options)])
		assert.equal((await no(call)).kind, "not_asked");
	assert.equal(asked.length, 0);
});

test("a redirect is not followed", async (t) => {
	const other = await pdp(t, () => allow);
	const { client } = await pdp(t, () => ({ status: 307, headers: { Location: `${other.url}/access/v1/evaluation` } }));
	const error = await no(client({ credential: key }).authorize(question));
	assert.deepEqual([error.kind, error.pdpStatus, other.asked.length], ["odd", 307, 0]);
});

test("questions are strict, and nothing is sent of one that is not", async (t) => {
	const { client, asked } = await pdp(t, () => allow);
	const bad: unknown[] = [
		undefined,
		null,
		"x",
		[question],
		{},
		{ ...question, options: {} },
		{ ...question, evaluations: [] },
		{ ...question, unknown: [] },
		{ ...question, subject: "alice" },
		{ ...question, subject: { type: "user" } },
		{ ...question, subject: { type: "user", id: 1 } },
		{ ...question, subject: { ...question.subject, admin: true } },
		{ ...question, subject: { ...question.subject, properties: [] } },
		{ ...question, subject: { type: "user", id: "\ud800" } },
		{ ...question, action: "read" },
		{ ...question, action: { name: undefined } },
		{ ...question, resource: null },
		{ ...question, context: [] },
		{ ...question, context: { when: new Date() } },
		{ ...question, context: { n: Number.NaN } },
		JSON.parse(`{"__proto__":{},"subject":{"type":"a","id":"b"},"action":{"name":"c"},"resource":{"type":"d","id":"e"}}`),
		Object.create(question),
		{
			...question,
			get context() {
				throw new Error("mine");
			},
		},
	];
	for (const one of bad) {
		const error = await no(client().enforce(one as Question, () => {}));
		assert.equal(error.kind, "not_asked");
		assert.ok(error instanceof Undecided);
		assert.equal(await client().evaluate(one as Question, { allow: () => "", deny: (e) => e.kind }), "not_asked");
	}
	assert.equal(asked.length, 0);
	const authors = { supported_mandatory_extensions: ["obligations", "x"], supported_obligations: ["all"] };
	for (const [n, obligations] of (["october", "july"] as const).entries()) {
		const c = client({ obligations });
		await c.authorize({ ...question, context: { ...authors, a: undefined, b: 1 } } as Question);
		await c.evaluate({ ...question, context: { ...authors, b: 1 } }, { allow: () => {}, deny: () => {} });
		assert.deepEqual(asked[2 * n]?.body.context, { ...(n === 0 ? adopting() : { supported_obligations: [] }), b: 1 });
		assert.deepEqual(asked[2 * n + 1]?.body.context, { b: 1 });
	}
});

test("a client is made only of options that can be", () => {
	const url = "http://127.0.0.1:1";
	const bad: ClientOptions[] = [
		{ url: "" },
		{ url: "ftp://127.0.0.1" },
		{ url: "127.0.0.1:80" },
		{ url: "unix:/run/pdp.sock" },
		{ url: "http://pdp.example" },
		{ url: "http://127.0.0.1.example" },
		{ url: "http://localhost.example" },
		{ url: "http://me:secret@127.0.0.1" },
		{ url: "http://127.0.0.1/?" },
		{ url: "http://127.0.0.1/#" },
		{ url: "http://127.0.0.1\\@x" },
		{ url, credential: "" },
		{ url, credential: "a\nb" },
		{ url, tenant: "../x" },
		{ url, tenant: "" },
		{ url, timeout: 0 },
		{ url, timeout: Number.NaN },
		{ url, retries: -1 },
		{ url, breaker: { failures: -1, coolDown: 1 } },
		{ url, handlers: { x: undefined as never } },
		{ url, handlers: { "": () => {} } },
	];
	for (const options of bad) {
		assert.throws(
			() => new Client(options),
			(e) => e instanceof TypeError && !e.message.includes("secret"),
			JSON.stringify(options),
		);
	}
	for (const good of ["https://pdp.example", "http://localhost:1", "http://[::1]/x/", "http://127.9.9.9"]) new Client({ url: good });
	new Client({ url: "http://pdp.example", plainHttp: true });
});

test("no proxy of the environment stands between a client and this machine", async (t) => {
	const { url, asked } = await pdp(t, () => allow);
	const proxy = createServer((socket) => {
		socket.once("data", () => {
			socket.write("HTTP/1.1 200 OK\r\n\r\n");
			socket.once("data", () =>
				socket.end(`HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${allow.length}\r\n\r\n${allow}`),
			);
		});
	});
	await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
	t.after(() => proxy.close());
	const index = new URL("../src/index.js", import.meta.url).href;
	const program = `
		const { Client } = await import("${index}");
		try {
			await new Client({ url: "${url}" }).enforce(${JSON.stringify(question)}, () => console.log("acted"));
		} catch (error) {
			console.log(error.name);
		}`;
	const run = async (env: { [name: string]: string }) => {
		const child = spawn(process.execPath, ["--input-type=module", "--eval", program], { env, stdio: ["ignore", "pipe", "ignore"] });
		let said = "";
		for await (const part of child.stdout) said += part;
		return said.trim();
	};
	const env = { NODE_USE_ENV_PROXY: "1", HTTP_PROXY: `http://127.0.0.1:${(proxy.address() as AddressInfo).port}` };
	assert.equal(await run(env), "TypeError");
	assert.deepEqual([await run({ ...env, NO_PROXY: "example.com,127.0.0.1" }), asked.length], ["acted", 1]);
});

test("a credential function is asked before each request, and its error is not repeated", async (t) => {
	const { client, asked } = await pdp(t, () => allow);
	let n = 0;
	const c = client({ credential: async () => `token${++n}` });
	await c.authorize(question);
	await c.authorize(question);
	assert.deepEqual(
		asked.map(({ headers }) => headers.authorization),
		["Bearer token1", "Bearer token2"],
	);
	for (const credential of [() => Promise.reject(new Error(key)), () => "", () => "a b", () => undefined as never]) {
		const error = await no(client({ credential }).authorize(question));
		assert.equal(error.kind, "not_asked");
		assert.ok(!error.message.includes(key));
	}
	const hangs = client({ credential: () => new Promise<string>(() => {}), timeout: 50 });
	assert.equal((await no(hangs.authorize(question))).kind, "timed_out");
	assert.equal(asked.length, 2);
});

test("a promise of another library is bounded as well", async (t) => {
	const { client, asked } = await pdp(t, () => allow);
	// biome-ignore lint/suspicious/noThenProperty: promises of libraries are such objects
	const never = { then: () => {} } as unknown as Promise<string>;
	assert.equal((await no(client({ credential: () => never, timeout: 50 }).authorize(question))).kind, "timed_out");
	assert.equal(asked.length, 0);
	const owing = await pdp(t, () => ({ json: { decision: true, context: { obligations: [own("1", "slow")] } } }));
	const caller = new AbortController();
	const slow = () => {
		caller.abort();
		return never as Promise<never>;
	};
	assert.equal((await no(owing.client({ handlers: { slow } }).authorize(question, { signal: caller.signal }))).kind, "obligated");
});

test("a request is sent again only if that cannot spend anything", async (t) => {
	const broken: Reply = (response) => response.destroy();
	const later: Reply = { status: 503, headers: { "Retry-After": "0" }, body: "{}" };
	for (const first of [broken, later]) {
		const { client, asked } = await pdp(t, (_, n) => (n === 1 ? first : allow));
		await client({ retries: 2 }).authorize(question);
		assert.equal(asked.length, 2);
		assert.equal(asked[0]?.headers["x-request-id"], asked[1]?.headers["x-request-id"]);
	}
	for (const first of [
		{ status: 503, body: "{}" },
		{ status: 400, headers: { "Retry-After": "0" } },
		"{",
		{ status: 429, headers: { "Retry-After": "60" } },
	]) {
		const { client, asked } = await pdp(t, (_, n) => (n === 1 ? first : allow));
		await no(client({ retries: 2 }).authorize(question));
		assert.equal(asked.length, 1);
	}
	const half: Reply = (response) => {
		response.writeHead(200, { "Content-Type": "application/json", "Content-Length": "100" });
		response.write('{"decision":true', () => response.destroy());
	};
	for (const context of [{ approval: { id: "a" } }, { approval_id: "a" }, { capability: { token: "t", proof: "p" } }]) {
		const lost: Reply[] = [broken, half, "{", { status: 502 }];
		const kept: Reply[] = [later, { status: 400 }, { status: 429, headers: { "Retry-After": "0" } }];
		for (const first of [...lost, ...kept]) {
			const spent = lost.includes(first);
			const { client, asked } = await pdp(t, () => first);
			const error = await no(client({ retries: 2 }).authorize({ ...question, context }));
			assert.equal(asked.length, 1);
			assert.equal(error.spent, spent);
			assert.equal(/may be gone/.test(error.remedy), spent);
		}
		const error = await no(new Client({ url: await closed(), retries: 1 }).authorize({ ...question, context }));
		assert.deepEqual([error.kind, error.spent], ["unreachable", false]);
	}
	const { client, asked } = await pdp(t, () => half);
	const error = await no(client({ retries: 2 }).authorize(question));
	assert.deepEqual([error.kind, error.spent, asked.length], ["unreachable", false, 1]);
});

/** The URL of a port at which nothing listens. */
async function closed(): Promise<string> {
	const server = createServer();
	await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
	const { port } = server.address() as { port: number };
	await new Promise((resolve) => server.close(resolve));
	return `http://127.0.0.1:${port}`;
}

test("the time-out is for the whole call, and the caller can end it before", async (t) => {
	const { client, asked } = await pdp(t, () => () => {}); // it never answers
	const error = await no(client({ timeout: 60, retries: 5 }).authorize(question));
	assert.deepEqual([error.kind, error.status], ["timed_out", 503]);
	assert.ok(asked.length <= 1);
	const slow = await pdp(t, () => (response) => {
		response.writeHead(200, { "Content-Type": "application/json" });
		response.write('{"decision":true');
	});
	assert.equal((await no(slow.client({ timeout: 60 }).authorize(question))).kind, "timed_out");
	const giveUp = new AbortController();
	const other = await pdp(t, () => () => giveUp.abort());
	assert.equal((await no(other.client().authorize(question, { signal: giveUp.signal }))).kind, "cancelled");
	const before = await no(other.client().authorize(question, { signal: AbortSignal.abort() }));
	assert.deepEqual([before.kind, other.asked.length], ["cancelled", 1]);
});

test("a pause that no timer can make is not left out", async () => {
	const giveUp = new AbortController();
	const long = sleep(2 ** 40, giveUp.signal);
	await sleep(10, undefined);
	giveUp.abort();
	assert.equal(await long, false);
});

test("the breaker denies at once, lets one call through after a while, and closes on an answer", async (t) => {
	let reply: Reply = { status: 500 };
	const { client, asked } = await pdp(t, () => reply);
	const c = client({ breaker: { failures: 2, coolDown: 0 } });
	const kept = client({ breaker: { failures: 2, coolDown: 60_000 } });
	const kinds = async (of: Client, n: number) => {
		const all: string[] = [];
		for (let i = 0; i < n; i++) all.push(await of.evaluate(question, { allow: () => "yes", deny: (e) => e.kind }));
		return all;
	};
	assert.deepEqual(await kinds(kept, 4), ["unavailable", "unavailable", "open", "open"]);
	assert.equal(asked.length, 2);
	reply = allow;
	assert.deepEqual(await kinds(kept, 1), ["open"]);
	reply = { status: 401 };
	assert.deepEqual(await kinds(c, 2), ["refused", "refused"]);
	const [one, other] = await Promise.all([kinds(c, 1), kinds(c, 1)]); // one is let through
	assert.deepEqual([...one, ...other].sort(), ["open", "refused"]);
	reply = allow;
	assert.deepEqual(await kinds(c, 2), ["yes", "yes"]);
	reply = { status: 400 };
	assert.deepEqual(await kinds(c, 3), ["refused", "refused", "refused"]);
	const never = client({ breaker: { failures: 0, coolDown: 60_000 } });
	reply = { status: 500 };
	assert.deepEqual(new Set(await kinds(never, 9)), new Set(["unavailable"]));
});

test("the tenants of a client share its breaker, and one that the PDP refuses does not open it for the others", async (t) => {
	const credentials: string[] = [];
	let reply: Reply = allow;
	const { client, asked } = await pdp(t, ({ path }) => (path.startsWith("/tenants/nobody/") ? { status: 404 } : reply));
	const c = client({
		breaker: { failures: 2, coolDown: 60_000 },
		credential: (tenant) => {
			credentials.push(tenant);
			return `key-of-${tenant}`;
		},
	});
	const kind = (of: Client) => of.evaluate(question, { allow: () => "yes", deny: (e) => e.kind });
	assert.deepEqual([await kind(c), await kind(c.forTenant("a")), await kind(c.forTenant("a").forTenant("b"))], ["yes", "yes", "yes"]);
	assert.deepEqual(credentials, ["default", "a", "b"]);
	assert.deepEqual(
		asked.map(({ path, headers }) => [path, headers.authorization]),
		[
			["/access/v1/evaluation", "Bearer key-of-default"],
			["/tenants/a/access/v1/evaluation", "Bearer key-of-a"],
			["/tenants/b/access/v1/evaluation", "Bearer key-of-b"],
		],
	);
	for (let n = 0; n < 5; n++) assert.equal(await kind(c.forTenant("nobody")), "refused");
	assert.equal(await kind(c.forTenant("a")), "yes");
	reply = { status: 500 };
	assert.deepEqual([await kind(c.forTenant("a")), await kind(c.forTenant("b"))], ["unavailable", "unavailable"]);
	for (const of of [c, c.forTenant("a"), c.forTenant("c")]) assert.equal(await kind(of), "open");
	for (const name of ["", ".", "a/b", "../a", "ä", "a".repeat(64), undefined, null, ["a"], 1])
		assert.throws(() => c.forTenant(name as string), TypeError, String(name));
});

test("questions without a decision are counted, and others are not", async (t) => {
	let reply: Reply = { status: 500 };
	const { client } = await pdp(t, () => reply);
	const counted: string[] = [];
	const c = client({
		onUndecided: (e) => {
			counted.push(e.kind);
			throw new Error("mine");
		},
	});
	const ask = () => c.evaluate(question, { allow: () => {}, deny: () => {} });
	await ask();
	await no(c.authorize(question));
	reply = '{"decision":false}';
	await ask();
	await no(c.authorize(question, { signal: AbortSignal.abort() }));
	reply = '{"decision":true,"obligations":{"x":true}}';
	await ask();
	await c.evaluate({} as never, { allow: () => {}, deny: () => {} });
	assert.deepEqual(counted, ["unavailable", "unavailable", "not_asked"]);
});
