// An MCP server that is its own PEP: it validates access tokens, asks a PDP about each request, and executes permitted
// requests alone. The conformance plan coaz of policy-service judges it. In this package, after npm run build:
//
//   node examples/mcp-server.mjs --pdp http://127.0.0.1:8180 --issuer https://idp.example.com
import { randomUUID } from "node:crypto";
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { InvalidTokenError } from "@modelcontextprotocol/sdk/server/auth/errors.js";
import { requireBearerAuth } from "@modelcontextprotocol/sdk/server/auth/middleware/bearerAuth.js";
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import * as mcp from "@modelcontextprotocol/sdk/types.js";
import express from "express";
import { createRemoteJWKSet, jwtVerify } from "jose";
import { Client } from "policy-service-client";
import { guard, MessageError, readMessage } from "policy-service-client/mcp";

const { values: flags } = parseArgs({
	options: {
		listen: { type: "string", default: "127.0.0.1:8191" },
		"addr-file": { type: "string" }, // gets the address as soon as requests are answered
		resource: { type: "string" }, // the server's own identifier, which tokens must be for
		issuer: { type: "string" },
		pdp: { type: "string" },
		"pdp-key-file": { type: "string" },
		tenant: { type: "string" },
		offer: { type: "string", default: new URL("mcp-offer.json", import.meta.url).pathname },
		report: { type: "string" }, // a URL that gets each request before it is executed
	},
});
if (!flags.pdp || !flags.issuer) throw new Error("--pdp and --issuer say who decides, and whose tokens are good");
const offer = JSON.parse(readFileSync(flags.offer, "utf8"));

const app = express();
const at = /^(.*):(\d+)$/.exec(flags.listen);
const listener = app.listen(Number(at?.[2]), at?.[1], () => {
	const address = `${listener.address().address}:${listener.address().port}`;
	serve(flags.resource ?? `http://${address}/mcp`);
	console.error(`serving http://${address}/mcp`);
	if (!flags["addr-file"]) return;
	writeFileSync(`${flags["addr-file"]}.new`, `${address}\n`);
	renameSync(`${flags["addr-file"]}.new`, flags["addr-file"]); // readers see it as a whole
});

function serve(resource) {
	const credential = flags["pdp-key-file"] && readFileSync(flags["pdp-key-file"], "utf8").trim();
	const client = new Client({ url: flags.pdp, timeout: 2000, ...(credential && { credential }), ...(flags.tenant && { tenant: flags.tenant }) });
	const guarding = {
		client, resource, tools: offer.tools,
		onRefused: (refusal, method) => console.error(`refused ${method}: ${refusal.code} ${refusal.cause ?? refusal.message}`),
	};
	const sessions = new Map();

	const metadata = new URL("/.well-known/oauth-protected-resource/mcp", resource);
	app.get(metadata.pathname, (_req, res) => res.json({ resource, authorization_servers: [flags.issuer], bearer_methods_supported: ["header"] }));

	const verifier = { verifyAccessToken: tokens(flags.issuer, resource) };
	app.all("/mcp", requireBearerAuth({ verifier, resourceMetadataUrl: metadata.href }), async (req, res) => {
		try {
			const message = req.method === "POST" ? await readMessage(req) : undefined;
			const { iss, sub, client_id } = req.auth.extra.claims;
			const owner = JSON.stringify([iss, sub, client_id]);
			const id = req.headers["mcp-session-id"];
			let session = sessions.get(id);
			if (session ? session.owner !== owner : id !== undefined) throw new MessageError(404, "there is no such session of yours", -32000);
			if (!session) {
				if (!mcp.isInitializeRequest(message)) throw new MessageError(400, "a session begins with initialize", -32000);
				session = { owner, transport: undefined };
				session.transport = new StreamableHTTPServerTransport({
					sessionIdGenerator: randomUUID, enableJsonResponse: true, onsessioninitialized: (given) => void sessions.set(given, session),
				});
				const { transport } = session;
				const server = serverOf(offer);
				server.onclose = () => sessions.delete(transport.sessionId);
				await server.connect(guard(transport, guarding));
			}
			session.idle ??= setTimeout(() => session.transport.close(), 10 * 60_000).unref();
			session.idle.refresh();
			if (req.method === "GET") {
				// a stream of the server's own messages ends with the token that opened it
				const end = setTimeout(() => res.end(), Math.min(2 ** 31 - 1, req.auth.expiresAt * 1000 - Date.now()));
				res.on("close", () => clearTimeout(end));
			}
			await session.transport.handleRequest(req, res, message);
		} catch (e) {
			if (!(e instanceof MessageError)) console.error(e);
			if (!res.headersSent) res.status(e.status ?? 500).json(e.body ?? { jsonrpc: "2.0", id: null, error: { code: -32603, message: "Internal error" } });
		}
	});
}

/** Validates a token: signature, issuer, audience and times. Its sender does not learn its fault. */
function tokens(issuer, audience) {
	let keys;
	return async (token) => {
		keys ??= createRemoteJWKSet(await jwksOf(issuer), { timeoutDuration: 5000 });
		try {
			const { payload, protectedHeader } = await jwtVerify(token, keys, { issuer, audience, algorithms: ["ES256", "RS256"], requiredClaims: ["exp"] });
			const type = (protectedHeader.typ ?? "jwt").toLowerCase();
			if (!["jwt", "at+jwt", "application/at+jwt"].includes(type)) throw new Error("it is no access token");
			return { token, clientId: String(payload.client_id ?? ""), scopes: [], expiresAt: payload.exp, extra: { claims: payload } };
		} catch {
			throw new InvalidTokenError("its signature, issuer, audience or time is not good");
		}
	};
}

/** Where the issuer's keys are. It is asked once it is needed: the issuer may start after this server. */
async function jwksOf(issuer) {
	const answer = await fetch(`${issuer.replace(/\/$/, "")}/.well-known/openid-configuration`, { signal: AbortSignal.timeout(5000), redirect: "error" });
	const said = await answer.json();
	if (!answer.ok || said.issuer !== issuer) throw new Error("the issuer's keys cannot be found");
	return new URL(said.jwks_uri);
}

/** Executes each request that it gets: to refuse is the guard's business. */
function serverOf({ tools, resources = [], resourceTemplates = [], prompts = [] }) {
	const capabilities = { tools: {}, resources: { subscribe: true }, prompts: {}, completions: {}, logging: {} };
	const server = new Server({ name: "coaz-example", version: "1" }, { capabilities });
	const executes = (schema, act) => server.setRequestHandler(schema, async (request) => {
		await report(request);
		return act(request.params);
	});
	server.setRequestHandler(mcp.ListToolsRequestSchema, () => ({ tools }));
	server.setRequestHandler(mcp.ListResourcesRequestSchema, () => ({ resources }));
	server.setRequestHandler(mcp.ListResourceTemplatesRequestSchema, () => ({ resourceTemplates }));
	server.setRequestHandler(mcp.ListPromptsRequestSchema, () => ({ prompts }));
	executes(mcp.CallToolRequestSchema, ({ name }) => ({ content: [{ type: "text", text: `ran ${name}` }] }));
	executes(mcp.ReadResourceRequestSchema, ({ uri }) => ({ contents: [{ uri, mimeType: "text/plain", text: "a note" }] }));
	executes(mcp.SubscribeRequestSchema, () => ({}));
	executes(mcp.UnsubscribeRequestSchema, () => ({}));
	executes(mcp.GetPromptRequestSchema, ({ arguments: args }) => ({ messages: [{ role: "user", content: { type: "text", text: `summarise ${args?.style ?? ""}` } }] }));
	executes(mcp.CompleteRequestSchema, () => ({ completion: { values: ["short", "long"] } }));
	executes(mcp.SetLevelRequestSchema, () => ({}));
	return server;
}

/** Nothing is executed that could not be reported. */
async function report({ method, params }) {
	if (!flags.report) return;
	const body = JSON.stringify({ method, params });
	const answer = await fetch(flags.report, { method: "POST", headers: { "content-type": "application/json" }, body, signal: AbortSignal.timeout(5000) });
	if (!answer.ok) throw new Error("what is executed cannot be reported");
}
