import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import { Client as McpClient } from "@modelcontextprotocol/sdk/client/index.js";
import { InMemoryTransport } from "@modelcontextprotocol/sdk/inMemory.js";
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { McpServer, ResourceTemplate } from "@modelcontextprotocol/sdk/server/mcp.js";
import {
	CallToolRequestSchema,
	type CallToolResult,
	type JSONRPCMessage,
	ListRootsResultSchema,
	ListToolsRequestSchema,
	McpError,
	SubscribeRequestSchema,
} from "@modelcontextprotocol/sdk/types.js";
import { z } from "zod";
import { Binding, Mapping } from "../src/coaz.js";
import { Client, type Handlers, type JsonObject } from "../src/index.js";
import { type GuardOptions, guard, guardTool, MessageError, parseMessage, Refusal, readMessage } from "../src/mcp.js";
import { own } from "./pdp.js";

// A PDP on a port of its own: it denies "no", obliges to redact "secret", and keeps the questions.
const asked: JsonObject[] = [];
const paths: string[] = []; // of their tenants
let held: (() => void) | undefined; // the answer about "held" waits for it
const answerTo = (q: { resource?: { id?: string } }) => {
	const id = q.resource?.id;
	if (id === "no") return { decision: false, context: { reason_user: "Not today." } };
	const redact = own("o1", "redact");
	return { decision: true, ...(id === "secret" && { context: { obligations: [redact] } }) };
};
const pdp = createServer(async (req, res) => {
	const parts: Uint8Array[] = [];
	for await (const part of req) parts.push(part as Uint8Array);
	const q = JSON.parse(Buffer.concat(parts).toString()) as JsonObject & { evaluations?: JsonObject[]; resource?: { id?: string } };
	if (req.url?.includes("/access/")) {
		asked.push(q);
		paths.push(req.url.replace(/\/access\/.*/, ""));
	}
	if (q.resource?.id === "held") await new Promise<void>((resolve) => (held = resolve));
	const body = q.evaluations ? { evaluations: q.evaluations.map((e) => answerTo({ ...q, ...e })) } : answerTo(q);
	res.writeHead(200, {
		"content-type": "application/json",
		...(req.headers["x-request-id"] && { "x-request-id": req.headers["x-request-id"] }),
	});
	res.end(JSON.stringify(body));
});
let url = "";
before(async () => {
	await once(pdp.listen(0, "127.0.0.1"), "listening");
	url = `http://127.0.0.1:${(pdp.address() as AddressInfo).port}`;
});
after(() => pdp.close().closeAllConnections());

const redact: Handlers = { redact: () => (result) => ({ ...(result as object), content: [{ type: "text", text: "redacted" }] }) };
const said = (text: string): CallToolResult => ({ content: [{ type: "text", text }] });
const textOf = (r: unknown) => ((r as CallToolResult).content[0] as { text: string }).text;
const authInfo = { token: "t", clientId: "c", scopes: [], extra: { claims: { sub: "alice", client_id: "agent" } } };

/** A client of a server whose one tool is guarded. */
async function tool(
	client: Client,
	question: Parameters<typeof guardTool<{ id: string }, { signal?: AbortSignal }, CallToolResult>>[1],
	ran: string[],
) {
	const server = new McpServer({ name: "s", version: "1" });
	const handler = guardTool(client, question, ({ id }: { id: string }) => {
		ran.push(id);
		if (id === "throws" || id === "secret-throws") throw new Error(`it holds ${id}`);
		return said(`got ${id}`);
	});
	server.registerTool("get", { inputSchema: { id: z.string() } }, handler);
	// types are inferred where it is written in place
	server.registerTool(
		"other",
		{ inputSchema: { id: z.string() } },
		guardTool(
			client,
			({ id }) => ({ subject: { type: "user", id: "a" }, action: { name: "x" }, resource: { type: "t", id } }),
			({ id }) => said(id),
		),
	);
	const [a, b] = InMemoryTransport.createLinkedPair();
	await server.connect(b);
	const mcp = new McpClient({ name: "c", version: "1" });
	await mcp.connect(a);
	return (id: string) => mcp.callTool({ name: "get", arguments: { id } });
}

test("a guarded tool runs on yes alone, and errors are shown as the SDK shows them", async () => {
	const ran: string[] = [];
	const question = ({ id }: { id: string }) => ({
		subject: { type: "user", id: "alice" },
		action: { name: "get" },
		resource: { type: "t", id },
	});
	const client = new Client({ url, handlers: redact });
	const call = await tool(client, question, ran);
	assert.equal(textOf(await call("yes")), "got yes");
	assert.equal(textOf(await call("secret")), "redacted");
	const no = await call("no");
	assert.deepEqual([no.isError, textOf(no)], [true, "Access denied: Not today."]);
	assert.equal(textOf(await call("throws")), "it holds throws");
	assert.deepEqual(ran, ["yes", "secret", "throws"]);
	const unhandled = await (await tool(new Client({ url }), question, ran))("secret");
	assert.deepEqual([unhandled.isError, textOf(unhandled)], [true, "Access denied"]);
	const away = await (await tool(new Client({ url: "http://127.0.0.1:1", retries: 0 }), question, ran))("yes");
	assert.deepEqual([away.isError, textOf(away)], [true, "Authorization service unavailable"]);
	const odd = await (
		await tool(
			new Client({ url }),
			() => {
				throw new Error("secret-4711");
			},
			ran,
		)
	)("yes");
	assert.deepEqual([odd.isError, textOf(odd)], [true, "No question can be made of the call"]);
	const none = await (await tool(new Client({ url }), () => [], ran))("yes");
	assert.equal(none.isError, true);
	const both = await tool(new Client({ url }), ({ id }) => ["yes", id].map((one) => question({ id: one })), ran);
	assert.equal((await both("no")).isError, true);
	assert.equal(textOf(await both("yes")), "got yes");
	assert.deepEqual(ran, ["yes", "secret", "throws", "yes"]);
	const nested = guardTool(client, question, () => client.authorize(question({ id: "no" })));
	await assert.rejects(nested({ id: "yes" }, {}), { name: "Refusal", message: "Access denied: Not today." });
});

test("a guarded tool without an inputSchema says what it lacks", async () => {
	const ran: string[] = [];
	const guarded = guardTool(
		new Client({ url }),
		() => ({ subject: { type: "u", id: "a" }, action: { name: "x" }, resource: { type: "t", id: "yes" } }),
		() => said(ran.push("it").toString()),
	);
	await assert.rejects((guarded as (extra: object) => Promise<unknown>)({ signal: new AbortController().signal }), /inputSchema: .*\{\}/);
	const server = new McpServer({ name: "s", version: "1" });
	server.registerTool("none", { inputSchema: {} }, guarded);
	const [a, b] = InMemoryTransport.createLinkedPair();
	await server.connect(b);
	const mcp = new McpClient({ name: "c", version: "1" });
	await mcp.connect(a);
	assert.deepEqual([textOf(await mcp.callTool({ name: "none" })), ran], ["1", ["it"]]);
});

test("an error of a tool whose result is to be changed is withheld", async () => {
	const ran: string[] = [];
	const question = ({ id }: { id: string }) => ({
		subject: { type: "user", id: "alice" },
		action: { name: "get" },
		resource: { type: "t", id: id.replace("-throws", "") },
	});
	const result = await (await tool(new Client({ url, handlers: redact }), question, ran))("secret-throws");
	assert.deepEqual([result.isError, textOf(result), ran], [true, "The result is withheld", ["secret-throws"]]);
});

test("a guarded tool is asked about by a mapping", async () => {
	const mapping = new Binding().parse({
		inputSchema: {
			"x-authzen-mapping": {
				evaluation: {
					action: { name: "$params.name" },
					resource: { type: "t", id: "$params.arguments.id" },
					context: { agent: "$token.?client_id" },
				},
			},
		},
	});
	assert.ok(mapping instanceof Mapping);
	const guarded = guardTool(new Client({ url }), { name: "get", mapping }, ({ id }: { id: string }) => id);
	asked.length = 0;
	assert.equal(await guarded({ id: "i" }, { authInfo }), "i");
	assert.deepEqual(asked[0], {
		subject: { type: "identity", id: "alice" },
		action: { name: "get" },
		resource: { type: "t", id: "i" },
		context: { agent: "agent", ...(asked[0]?.context as object) },
	});
	await assert.rejects(guarded({ id: "i" }, {}), (e: unknown) => e instanceof Refusal && e.kind === "mapping" && e.code === -32602);
	await assert.rejects(
		guarded({ id: "no" }, { authInfo }),
		(e: unknown) => e instanceof Refusal && e.kind === "denied" && e.code === -32001,
	);
});

const mapped = (name: string) => ({
	name,
	inputSchema: {
		type: "object" as const,
		"x-authzen-mapping": { evaluation: { action: { name }, resource: { type: "t", id: "$params.arguments.id" } } },
	},
});
const tools = [mapped("get"), { name: "older", coaz: true, inputSchema: { type: "object" as const } }];

/** A raw client before a guarded server. */
async function session(options: Partial<GuardOptions> = {}, other?: McpServer) {
	const server = other?.server ?? new Server({ name: "s", version: "1" }, { capabilities: { tools: {} } });
	const ran: string[] = [];
	const stopped: string[] = [];
	let began = () => {};
	server.setRequestHandler(ListToolsRequestSchema, () => ({ tools }));
	server.setRequestHandler(CallToolRequestSchema, async ({ params }, extra) => {
		const id = String(params.arguments?.id);
		ran.push(id);
		if (id === "roots") return said(JSON.stringify(await extra.sendRequest({ method: "roots/list" }, ListRootsResultSchema)));
		if (params.name === "throws") throw new McpError(-32000, `it holds ${id}`);
		if (id === "slow") {
			began();
			await once(extra.signal, "abort");
			stopped.push(id);
		}
		return said(`got ${id}`);
	});
	const [a, b] = InMemoryTransport.createLinkedPair();
	const errors: string[] = [];
	const refusals: string[] = [];
	server.onerror = (e) => errors.push(e.message);
	await server.connect(
		guard(b, {
			client: new Client({ url, handlers: redact }),
			tools,
			onRefused: (r, method) => void refusals.push(`${method} ${r.code}`),
			...options,
		}),
	);
	const answers: { [id: string]: (m: JsonObject) => void } = {};
	a.onmessage = (m) => {
		if ("method" in m && "id" in m) void a.send({ jsonrpc: "2.0", id: m.id, result: { roots: [{ uri: "file:///r" }] } });
		else if ("id" in m) answers[String(m.id)]?.(m as unknown as JsonObject);
	};
	const send = (m: object, info: typeof authInfo | undefined = authInfo) =>
		a.send({ jsonrpc: "2.0", ...m } as JSONRPCMessage, info && { authInfo: info });
	let ids = 0;
	const ask = async (method: string, params: object = {}, id: string | number = `r${++ids}`, info = authInfo) => {
		const answer = new Promise<JsonObject>((resolve) => (answers[String(id)] = resolve));
		await send({ id, method, params }, info);
		return answer;
	};
	return { ask, send, ran, stopped, errors, refusals, close: () => a.close(), starts: new Promise<void>((resolve) => (began = resolve)) };
}
const call = (name: string, id: string) => ["tools/call", { name, arguments: { id } }] as const;
const codeOf = (m: JsonObject) => (m.error as { code?: number } | undefined)?.code;

test("the guard lets through what is permitted, and nothing else", async () => {
	const s = await session();
	asked.length = 0;
	assert.deepEqual(await s.ask("ping"), { jsonrpc: "2.0", id: "r1", result: {} });
	assert.equal(asked.length, 0);
	assert.equal(textOf((await s.ask(...call("get", "yes"))).result), "got yes");
	assert.equal(textOf((await s.ask(...call("get", "secret"))).result), "redacted");
	const no = await s.ask(...call("get", "no"));
	assert.deepEqual(no.error, {
		code: -32001,
		message: "Access denied: Not today.",
		data: { type: "authorization_denied", reason: "Not today." },
	});
	assert.deepEqual(s.ran, ["yes", "secret"]);
	asked.length = 0;
	for (const [method, params] of [call("older", "yes"), ["tools/call", { name: "get" }], ["tools/call", {}]] as const)
		assert.equal(codeOf(await s.ask(method, params)), -32602);
	for (const method of ["tools/destroy", "notifications/initialized", "notifications/x", "Tools/Call", "constructor", "server/discover"])
		assert.equal(codeOf(await s.ask(method)), -32001);
	assert.equal(asked.length, 0);
	assert.equal(codeOf(await s.ask("resources/templates/list")), -32602); // the token has no audience
	assert.equal(codeOf(await s.ask(...call("undeclared", "yes"))), -32602);
	assert.equal((await s.ask(...call("get", "roots"))).error, undefined); // the server asks its client meanwhile
	assert.deepEqual(s.refusals.slice(0, 2), ["tools/call -32001", "tools/call -32602"]);
	await s.send({ method: "tools/call", params: { name: "get", arguments: { id: "yes" } } });
	await s.send({ method: "notifications/x" });
	await s.ask("ping");
	assert.deepEqual([s.ran, s.errors.length], [["yes", "secret", "roots"], 2]);
});

test("a URI that the server would read as another one is not asked about", async () => {
	const server = new McpServer({ name: "s", version: "1" }, { capabilities: { resources: { subscribe: true }, tools: {} } });
	const ran: string[] = [];
	const read = (uri: URL) => {
		ran.push(uri.href);
		return { contents: [{ uri: uri.href, text: "read" }] };
	};
	server.registerResource("secret", "file:///secret", {}, read);
	server.registerResource(
		"note",
		new ResourceTemplate("file:///public/{name}", { list: undefined, complete: { name: () => ["a"] } }),
		{},
		read,
	);
	server.server.setRequestHandler(SubscribeRequestSchema, ({ params }) => {
		ran.push(params.uri);
		return {};
	});
	const s = await session({}, server);
	asked.length = 0;
	for (const method of ["resources/read", "resources/subscribe", "resources/unsubscribe"]) {
		for (const uri of [
			"file:///public/../secret",
			"file:///public/%2e%2E/secret",
			"file:///public\\..\\secret",
			"file:///sec\tret",
			" file:///secret",
			"FILE:///secret",
			"file://localhost/secret",
			"secret",
			"",
		])
			assert.equal(codeOf(await s.ask(method, { uri })), -32602, `${method} ${uri}`);
	}
	assert.deepEqual([asked.length, ran], [0, []]);
	for (const uri of ["file:///secret", "file:///public/a%20b"]) assert.ok((await s.ask("resources/read", { uri })).result);
	assert.ok((await s.ask("resources/subscribe", { uri: "mem://notes" })).result);
	// the server finds the text of a template as it is written
	const ref = { type: "ref/resource", uri: "file:///public/{name}" };
	assert.ok((await s.ask("completion/complete", { ref, argument: { name: "name", value: "" } })).result);
	assert.equal(
		codeOf(
			await s.ask("completion/complete", { ref: { ...ref, uri: "file:///a/../public/{name}" }, argument: { name: "name", value: "" } }),
		),
		-32602,
	);
	assert.deepEqual(ran, ["file:///secret", "file:///public/a%20b", "mem://notes"]);
});

test("an error of the server whose result is to be changed is withheld", async () => {
	const s = await session({ tools: (name) => (name === "throws" ? mapped("throws") : undefined) });
	assert.deepEqual((await s.ask(...call("throws", "secret"))).error, {
		code: -32603,
		message: "The result is withheld",
		data: { type: "withheld" },
	});
	assert.equal(codeOf(await s.ask(...call("throws", "yes"))), -32000);
	assert.deepEqual(s.ran, ["secret", "yes"]);
});

test("a tool is asked about as its definition is when it is called, and not without one", async () => {
	const plain = { name: "plain", inputSchema: { type: "object" as const } };
	const tools: { name: string; [member: string]: unknown }[] = [mapped("get"), plain];
	const s = await session({ tools });
	const askedAbout = async (name: string, id = "yes") => {
		asked.length = 0;
		const code = codeOf(await s.ask(...call(name, id)));
		return code ?? (asked[0]?.action as JsonObject | undefined)?.name;
	};
	assert.deepEqual([await askedAbout("get"), await askedAbout("plain")], ["get", "tools/call"]);
	for (const name of [
		"later",
		"Get",
		"GET",
		"get ",
		" get",
		"g\u200bet",
		"\uff47et",
		"get\u0000",
		"",
		"0",
		"length",
		"constructor",
		"__proto__",
	])
		assert.equal(await askedAbout(name), -32602, JSON.stringify(name));
	tools.push(mapped("later"));
	assert.deepEqual([await askedAbout("later"), await askedAbout("later", "no")], ["later", -32001]);
	Object.assign(tools[0] as object, mapped("changed"), { name: "get" });
	assert.equal(await askedAbout("get"), "changed");
	const schema = plain.inputSchema as { [member: string]: unknown };
	schema["x-authzen-mapping"] = { evaluation: { action: { name: "declared" }, resource: { type: "t", id: "$params.arguments.id" } } };
	assert.equal(await askedAbout("plain"), "declared");
	const { evaluation } = schema["x-authzen-mapping"] as { evaluation: { action: { name: string } } };
	evaluation.action.name = "changed within";
	assert.equal(await askedAbout("plain"), "changed within");
	tools.push({ ...mapped("get"), inputSchema: {} });
	assert.equal(await askedAbout("get"), -32602); // the server runs one of the two
	tools.splice(0);
	for (const name of ["get", "plain", "later"]) assert.equal(await askedAbout(name), -32602);
	assert.deepEqual(s.ran, ["yes", "yes", "yes", "yes", "yes", "yes"]);
});

test("only where no tools are given is a call asked about by the default mapping", async () => {
	const { client, ...without } = { client: new Client({ url }) };
	for (const tools of [undefined, null, {}, "get", new Map([["get", mapped("get")]])]) {
		const [, b] = InMemoryTransport.createLinkedPair();
		assert.throws(() => guard(b, { client, tools } as unknown as GuardOptions), /tools is neither/);
	}
	const server = new Server({ name: "s", version: "1" }, { capabilities: { tools: {} } });
	server.setRequestHandler(CallToolRequestSchema, () => said("ran"));
	const [a, b] = InMemoryTransport.createLinkedPair();
	await server.connect(guard(b, { client, ...without }));
	const answers: JsonObject[] = [];
	const got = new Promise<void>((resolve) => {
		a.onmessage = (m) => resolve(void answers.push(m as unknown as JsonObject));
	});
	asked.length = 0;
	await a.send({ jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "any", arguments: {} } }, { authInfo });
	await got;
	assert.deepEqual(
		[textOf(answers[0]?.result), asked[0]?.action, asked[0]?.resource],
		["ran", { name: "tools/call" }, { type: "tool", id: "any" }],
	);
});

test("a definition that is none is not passed over for the default mapping", async () => {
	const odd = [
		undefined,
		null,
		true,
		"get",
		[],
		[mapped("get")],
		() => mapped("get"),
		{ inputSchema: [] },
		{ inputSchema: "x" },
		{ inputSchema: null },
		new (class {
			name = "get";
			inputSchema = {};
		})(),
		{ name: "get", inputSchema: new (class {})() },
		{ name: "get", inputSchema: Object.create(mapped("get").inputSchema) },
		{ name: "get", toJSON: () => mapped("get") }, // tools/list shows its mapping
		{ name: "get", inputSchema: { toJSON: () => mapped("get").inputSchema } },
		{ name: "get", inputSchema: Object.create(Object.create(null, { toJSON: { value: () => mapped("get").inputSchema } })) },
	];
	for (const definition of odd) {
		const s = await session({ tools: () => definition });
		assert.equal(codeOf(await s.ask(...call("get", "yes"))), -32602, String(definition));
		assert.deepEqual(s.ran, []);
	}
});

test("a definition that a function finds by another spelling is not that of the tool", async () => {
	const s = await session({ tools: (name) => mapped(name.trim().toLowerCase()) });
	for (const name of ["Get", " get", "GET"]) assert.equal(codeOf(await s.ask(...call(name, "yes"))), -32602, name);
	assert.equal(textOf((await s.ask(...call("get", "yes"))).result), "got yes");
	assert.deepEqual(s.ran, ["yes"]);
});

test("each request is asked about by the client that is chosen for it, and by no other one", async () => {
	const tenants: (string | undefined)[] = [];
	const client = new Client({ url });
	const chooses = (info: { extra?: { claims?: unknown } } | undefined) => {
		const { tenant } = (info?.extra?.claims ?? {}) as { tenant?: string };
		tenants.push(tenant);
		return tenant === undefined ? (undefined as never) : client.forTenant(tenant);
	};
	const of = (tenant: string) => ({ ...authInfo, extra: { claims: { ...authInfo.extra.claims, tenant } } });
	const s = await session({ client: chooses });
	assert.equal(codeOf(await s.ask(...call("get", "yes"))), -32603);
	const guarded = guardTool(
		({ authInfo }) => chooses(authInfo),
		({ id }) => ({ subject: { type: "user", id: "a" }, action: { name: "x" }, resource: { type: "t", id } }),
		({ id }: { id: string }) => id,
	);
	await assert.rejects(guarded({ id: "yes" }, { authInfo }), { name: "Refusal", kind: "unreachable" });
	asked.length = 0;
	assert.equal(await guarded({ id: "yes" }, { authInfo: of("a") }), "yes");
	assert.equal(textOf((await s.ask(...call("get", "yes"), "b", of("b"))).result), "got yes");
	assert.equal(codeOf(await s.ask(...call("get", "yes"))), -32603);
	assert.deepEqual([tenants, paths.slice(-2), s.ran], [[undefined, undefined, "a", "b", undefined], ["/tenants/a", "/tenants/b"], ["yes"]]);
});

test("an array is no result", async () => {
	const s = await session({ client: new Client({ url, handlers: { redact: () => () => [{ content: [] }] } }) });
	assert.deepEqual((await s.ask(...call("get", "secret"))).error, {
		code: -32603,
		message: "The result is withheld",
		data: { type: "withheld" },
	});
});

test("a definition that comes later is not passed over for the default mapping", async () => {
	const s = await session({ tools: async (name) => mapped(name) });
	assert.equal(codeOf(await s.ask(...call("get", "no"))), -32602);
	assert.equal(codeOf(await s.ask(...call("get", "yes"))), -32602);
	assert.deepEqual(s.ran, []);
});

test("a result that is to be changed is not left for tasks/result", async () => {
	const s = await session();
	const params = (id: string) => ({ name: "get", arguments: { id }, task: { ttl: 1000 } });
	const no = await s.ask("tools/call", params("secret"));
	assert.equal(codeOf(no), -32001);
	assert.match((no.error as { message: string }).message, /leave params.task out/);
	const yes = await s.ask("tools/call", params("yes")); // goes on to the server, which has no tasks
	assert.match((yes.error as { message: string }).message, /does not support task creation/);
	assert.deepEqual(s.ran, []);
});

test("a change to what is no result is withheld, and a log that fails fails nothing else", async () => {
	const breaks = () => {
		throw new Error("the log is full");
	};
	const client = new Client({ url, handlers: { redact: () => () => undefined } });
	const s = await session({ client, onRefused: breaks });
	assert.deepEqual((await s.ask(...call("get", "secret"))).error, {
		code: -32603,
		message: "The result is withheld",
		data: { type: "withheld" },
	});
	assert.equal(codeOf(await s.ask(...call("get", "no"))), -32001);
	assert.equal(textOf((await s.ask(...call("get", "yes"))).result), "got yes");
	assert.deepEqual(s.errors, ["the log is full", "the log is full"]);
	const later = await session({ onRefused: async () => breaks() });
	assert.equal(codeOf(await later.ask(...call("get", "no"))), -32001);
	assert.equal(textOf((await later.ask(...call("get", "yes"))).result), "got yes");
	assert.deepEqual(later.errors, ["the log is full"]);
});

test("an id counts once, and what is cancelled goes no further", async () => {
	const s = await session();
	const slow = s.ask(...call("get", "slow"), "one");
	await s.starts;
	assert.equal(codeOf(await s.ask("ping", {}, "one")), -32600); // a ping's result would pass for that of the call
	void slow;
	await s.send({ method: "notifications/cancelled", params: { requestId: "one" } });
	assert.equal(textOf((await s.ask(...call("get", "yes"))).result), "got yes");
	assert.deepEqual([s.ran, s.stopped], [["slow", "yes"], ["slow"]]);
	const waits = s.ask(...call("get", "held"), "two"); // the PDP has not answered
	void waits;
	while (!held) await new Promise((resolve) => setImmediate(resolve));
	await s.send({ method: "notifications/cancelled", params: { requestId: "two" } });
	held();
	assert.equal(textOf((await s.ask(...call("get", "yes"))).result), "got yes");
	assert.deepEqual(s.ran, ["slow", "yes", "yes"]);
	void s.ask("ping", {}, "four");
	await s.send({ method: "notifications/cancelled", params: { requestId: "four" } });
	assert.deepEqual((await s.ask("ping", {}, "four")).result, {}); // a cancelled ping is kept nowhere
	const last = s.ask(...call("get", "slow"), "three");
	void last;
	while (s.ran.length < 4) await new Promise((resolve) => setImmediate(resolve));
	await s.close();
	while (s.stopped.length < 2) await new Promise((resolve) => setImmediate(resolve));
});

test("messages that two readers could read differently", () => {
	const bytes = (text: string) => new TextEncoder().encode(text);
	const good = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"n":1.5,"Name":"x"}}}';
	assert.deepEqual(parseMessage(bytes(good)), JSON.parse(good));
	for (const [text, code, id] of [
		["", -32700],
		[`${good}{}`, -32700],
		[`\ufeff${good}`, -32700],
		[`[${good}]`, -32600],
		["1", -32600],
		[good.replace("{", '{"id":2,'), -32700],
		[good.replace('"n"', '"n":1,"n"'), -32700],
		[good.replace('"n"', '"\\u006e":1,"n"'), -32700],
		[good.replace('"id":1', '"ID":1'), -32600],
		[good.replace('"name"', '"Name":"u","name"'), -32600],
		[good.replace('"params"', '"param\u017f":{},"params"'), -32600],
		[good.replace('"id":1', '"id":null'), -32600],
		[good.replace('"id":1', '"id":1.5'), -32600],
		[good.replace('"id":1,', ""), -32600],
		[good.replace('"tools/call"', "1"), -32600],
		[good.replace('"params"', '"result":{},"params"'), -32600],
		[good.replace('"n"', '"__proto__"'), -32600],
		[good.replace('"t"', '"\\ud800"'), -32700],
		[good.replace("1.5", "9007199254740993"), -32602, 1],
		[good.replace('"id":1', '"id":9007199254740993'), -32602],
		[good.replace("1.5", "[".repeat(100) + "]".repeat(100)), -32700],
	] as [string, number, number?][]) {
		assert.throws(
			() => parseMessage(bytes(text)),
			(e: unknown) => {
				assert.ok(e instanceof MessageError, text);
				assert.deepEqual([(e.body.error as { code: number }).code, e.body.id], [code, id ?? null], text);
				return true;
			},
		);
	}
	assert.throws(() => parseMessage(Uint8Array.from([...bytes('{"a":"'), 0xff, ...bytes('"}')])), MessageError);
});

test("a message is read once from its request, and within bounds", async () => {
	const server = createServer((req, res) => {
		readMessage(req, 100).then(
			(m) => res.end(JSON.stringify(m)),
			(e: MessageError) => res.writeHead(e.status).end(),
		);
	});
	await once(server.listen(0, "127.0.0.1"), "listening");
	const at = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
	const status = async (body: string, headers: { [name: string]: string }) => (await fetch(at, { method: "POST", body, headers })).status;
	const ping = '{"jsonrpc":"2.0","id":1,"method":"ping"}';
	for (const [body, type, want] of [
		[ping, "application/json", 200],
		[ping, "Application/JSON; charset=UTF-8", 200],
		[ping, "application/json;charset=utf-16", 415],
		[ping, "text/plain", 415],
		[ping, "application/jsonp", 415],
		[ping.padEnd(101), "application/json", 413],
		["[]", "application/json", 400],
	] as [string, string, number][])
		assert.equal(await status(body, { "content-type": type }), want, `${type} ${body}`);
	assert.equal(await status(ping, { "content-type": "application/json", "content-encoding": "gzip" }), 415);
	server.close().closeAllConnections();
});
