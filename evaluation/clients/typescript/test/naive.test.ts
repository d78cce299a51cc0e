// Careless lines of JavaScript, or of types that are any: those that tsc would refuse (naive/types.ts), and others. The PDP
// here says yes to all, or no to all. No act runs.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { AuthorizationError, Client, type Question } from "../src/index.js";

// biome-ignore lint/suspicious/noExplicitAny: JavaScript has no types
type Any = any;

let asked = 0;
const pdp = createServer((req, res) => {
	asked++;
	req.resume().once("end", () => {
		res.setHeader("Content-Type", "application/json");
		res.setHeader("X-Request-ID", req.headers["x-request-id"] ?? "");
		const no = { decision: false, context: { allow: true, decision: true, possible: true } };
		const yes = { decision: true };
		const one = req.url?.startsWith("/yes") ? yes : no;
		res.end(JSON.stringify(req.url?.endsWith("/evaluations") ? { evaluations: [one, one] } : one));
	});
});
let yes: Any;
let no: Any;
let base: string;
before(async () => {
	pdp.listen(0, "127.0.0.1");
	await once(pdp, "listening");
	const url = `http://127.0.0.1:${(pdp.address() as AddressInfo).port}`;
	base = url;
	[yes, no] = [new Client({ url: `${url}/yes` }), new Client({ url: `${url}/no` })];
});
after(() => {
	pdp.closeAllConnections();
	pdp.close();
});

const q: Question = { subject: { type: "user", id: "ann" }, action: { name: "read" }, resource: { type: "doc", id: "d1" } };
/** The body of a request by a caller that knows the service. */
const body: Any = { ...q, evaluations: [{}], options: { evaluations_semantic: "permit_on_first_permit" } };

/** Lines that throw before there is a promise, which would be true in an `if`. Even a PDP that says yes is not asked. */
const throwing: Record<string, (act: () => void) => unknown> = {
	"if (client.evaluate(q))": (act) => yes.evaluate(q) && act(),
	"if (client.evaluate(q, {allow}))": (act) => yes.evaluate(q, { allow: act }) && act(),
	"if (client.evaluate(q, {deny}))": (act) => yes.evaluate(q, { deny: () => {} }) && act(),
	"if (client.evaluate(q, allow, deny))": (act) => yes.evaluate(q, act, act) && act(),
	"if (client.evaluate(q, true))": (act) => yes.evaluate(q, true) && act(),
	"if (client.enforce(q))": (act) => yes.enforce(q) && act(),
	"if (client.enforce(q, {wait}))": (act) => yes.enforce(q, { wait: 1 }) && act(),
	"if (client.enforceAll([q]))": (act) => yes.enforceAll([q]) && act(),
	"if (client.evaluateBatch([q]))": (act) => yes.evaluateBatch([q]) && act(),
	"if (client.evaluateBatch([q], {allow}))": (act) => yes.evaluateBatch([q], { allow: act }) && act(),
	"if (client.allowed(q))": (act) => yes.allowed(q) && act(),
	"new Client(url)": (act) => new (Client as Any)("http://localhost").authorize(q) && act(),
	"new Client({}), with no URL": (act) => new (Client as Any)({}).authorize(q) && act(),
	"a credential to another machine by http": (act) => (new Client({ url: "http://pdp.example", credential: "k" }) as Any) && act(),
	"a URL with a password": (act) => (new Client({ url: "https://a:b@pdp.example" }) as Any) && act(),
};

for (const [line, run] of Object.entries(throwing)) {
	test(`${line} throws`, () => {
		const before = asked;
		assert.throws(() => run(() => assert.fail("it acted")));
		assert.equal(asked, before);
	});
}

/** Lines that reject, each with its kind. A thing that is no question is not asked, even of a PDP that would say yes. */
const rejecting: Record<string, [kind: string, run: (act: () => void) => Promise<unknown>]> = {
	"enforce(req.body)": ["not_asked", (act) => yes.enforce(body, act)],
	"enforce(JSON text)": ["not_asked", (act) => yes.enforce(JSON.stringify(q), act)],
	"enforce(undefined)": ["not_asked", (act) => yes.enforce(undefined, act)],
	"enforce([q])": ["not_asked", (act) => yes.enforce([q], act)],
	"enforce(a PDP's answer)": ["not_asked", (act) => yes.enforce({ decision: true }, act)],
	"enforce({...q, context: req.body}) of a class": ["not_asked", (act) => yes.enforce({ ...q, context: new Map([["a", 1]]) }, act)],
	"enforce with the user's name as subject": ["not_asked", (act) => yes.enforce({ ...q, subject: "ann" }, act)],
	"enforce without a user": ["not_asked", (act) => yes.enforce({ ...q, subject: { type: "user", id: undefined } }, act)],
	"enforce({...q, __proto__})": ["not_asked", (act) => yes.enforce(JSON.parse(`{"__proto__": ${JSON.stringify(q)}}`), act)],
	"enforce(Object.create(q))": ["not_asked", (act) => yes.enforce(Object.create(q), act)],
	"if (await authorize(req.body))": ["not_asked", async (act) => (await yes.authorize(body)) && act()],
	"authorize(q, {wait: '4h'})": ["not_asked", async (act) => (await yes.authorize(q, { wait: "4h" })) && act()],
	"enforceAll([])": ["not_asked", (act) => yes.enforceAll([], act)],
	"enforceAll(q)": ["not_asked", (act) => yes.enforceAll(q, act)],
	"every() of a batch of nothing": [
		"not_asked",
		async (act) => (await yes.evaluateBatch([], { allow: () => true, deny: () => false })).every(Boolean) && act(),
	],
	"a batch with req.body.options": [
		"not_asked",
		async (act) => (await yes.evaluateBatch([q], { allow: act, deny: () => {} }, { semantic: body.options })) && act(),
	],
	"enforceAll, and fewer questions than answers": ["odd", (act) => yes.enforceAll([q], act)],
	"enforce(q)": ["denied", (act) => no.enforce(q, act)],
	"await authorize(q)": ["denied", async (act) => (await no.authorize(q)) && act()],
	"enforceAll([q, q])": ["denied", (act) => no.enforceAll([q, q], act)],
};

for (const [line, [kind, run]] of Object.entries(rejecting)) {
	test(`${line} rejects`, async () => {
		const before = asked;
		await assert.rejects(
			run(() => assert.fail("it acted")),
			(e) => e instanceof AuthorizationError && e.kind === kind,
		);
		assert.equal(asked - before, kind === "not_asked" ? 0 : 1);
	});
}

/** Lines that deny: the thing that they look at has no such member, or is no yes. */
const denying: Record<string, () => Promise<unknown>> = {
	"a.allow of evaluate": async () => (await no.evaluate(q, { allow: () => ({ allow: true }), deny: (e: Any) => e }))?.allow,
	"a.decision of evaluate": async () => (await no.evaluate(q, { allow: () => true, deny: (e: Any) => e }))?.decision,
	"the answer itself, where deny returns nothing": () => no.evaluate(q, { allow: () => true, deny: () => {} }),
	"permit.allow": async () => (await yes.authorize(q)).allow,
	"permit.decision": async () => (await yes.authorize(q)).decision,
	"permit === true": async () => (await yes.authorize(q)) === true,
	"authorize(q) === true": async () => yes.authorize(q) === true,
	"every() of a batch": async () => (await no.evaluateBatch([q, q], { allow: () => true, deny: () => false })).every(Boolean),
	"some() of a batch of another length": async () =>
		(await yes.evaluateBatch([q, q, q], { allow: () => true, deny: () => false })).some(Boolean),
	"e.allow of what was caught": () => no.authorize(q).catch((e: Any) => e.allow || e.decision || e.permitted),
};

for (const [line, run] of Object.entries(denying)) {
	test(`${line} is no yes`, async () => assert.ok(!(await run())));
}

/** Lines that tsc takes, because a promise may be negated, or returned to every(). A linter with types refuses them. */
const crashing = ["if (!client.authorize(q)) throw 'no'", "if (![q].every((q) => client.authorize(q))) throw 'no'", "client.authorize(q)"];

for (const line of crashing) {
	test(`${line}, not awaited, ends the process`, async () => {
		const program = `import { Client } from ${JSON.stringify(new URL("../src/index.js", import.meta.url))};
			const client = new Client({ url: ${JSON.stringify(`${base}/no`)} });
			const q = ${JSON.stringify(q)};
			${line};
			setTimeout(() => console.log("it went on"), 60_000);`;
		const ended = await promisify(execFile)(process.execPath, ["--input-type=module", "-e", program]).catch((e) => e);
		assert.deepEqual([ended.code, ended.stdout], [1, ""]);
		assert.match(ended.stderr, /^Denied: /m);
	});
}

/** Runs a program with a client of a PDP that says yes, and returns the lines of its log. */
async function logOf(program: string): Promise<string[]> {
	const { stderr } = await promisify(execFile)(process.execPath, [
		"--input-type=module",
		"-e",
		`import { Client } from ${JSON.stringify(new URL("../src/index.js", import.meta.url))};
const client = new Client({ url: ${JSON.stringify(`${base}/yes`)}, timeout: 60_000 });
const q = ${JSON.stringify(q)};
${program}`,
	]);
	return stderr.split("\n").filter(Boolean);
}

test("a permit that nobody awaits is an error in the log, once a place", async () => {
	const log = await logOf(`
for (let n = 0; n < 3; n++) {
	if (!client.authorize(q)) throw "no";
	await client.authorize(q);
}
[q, q].every((q) => client.authorize(q));
while (!client.authorize(q));
if (!client.authorize(q).catch(() => false)) throw "no";
if (!client.authorize(q).finally(() => {})) throw "no";`);
	const says = /^policy-service-client: nobody awaited authorize at .*:(\d+):\d+\)?: .*; use enforce\(question, act\)$/;
	const lines = log.map((line) => Number(says.exec(line)?.[1])).sort((a, b) => a - b); // answers come in any order
	assert.deepEqual(lines, [6, 9, 10, 11, 12], log.join("\n"));
});

test("a permit that somebody awaits is none", async () => {
	const log = await logOf(`
const later = async () => client.authorize(q);
await Promise.all([client.authorize(q), later(), client.authorize(q).then(() => {}), client.authorize(q).finally(() => {})]);
await Promise.race([client.authorize(q)]);
await client.authorize(q).catch(() => {});
await client.authorize(q).finally(() => {}).finally(() => {});
await client.authorize(q).catch(() => {}).catch(() => {}).then(() => {});
await client.enforce(q, () => {});
await client.evaluate(q, { allow: () => {}, deny: () => {} });`);
	assert.deepEqual(log, []);
});

test("the PDP says yes to what is asked with care", async () => {
	assert.equal(await yes.enforce(q, () => "done"), "done");
});
