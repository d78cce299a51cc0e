// What all bundles have: the calls of the table of cases, a guarded route, and mappings.
import { Hono } from "hono";
import { Client } from "policy-service-client";
import { Binding } from "policy-service-client/coaz";
import { protect } from "policy-service-client/hono";
import { call } from "./calls.js";

const mapping = { evaluation: { action: { name: "read" }, resource: { type: "doc", id: "$params.arguments.id" } } };
const binding = new Binding({ subjectClaim: "/act/sub" });

/** Does a call of the table, or one of a route whose question a mapping makes. */
export async function answer(text) {
	const { do: what, client: options, what: id } = JSON.parse(text);
	if (what !== "route") return call(text);
	const client = new Client(options);
	const mapped = binding.parse({ inputSchema: { "x-authzen-mapping": mapping } });
	const operation = { method: "tools/call", params: { name: "read", arguments: { id } }, token: { act: { sub: "alice" } } };
	const app = new Hono();
	app.get(
		"/",
		protect(
			() => client.forTenant("default"),
			() => mapped.questions(operation).questions[0],
		),
		(c) => c.text("done"),
	);
	const got = await app.request("/");
	return JSON.stringify({ status: got.status, result: await got.text() });
}
