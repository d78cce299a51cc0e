import { createServer, type IncomingHttpHeaders, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import { type AuthorizationError, Client, type ClientOptions, type Question } from "../src/index.js";

/** A request to a PDP. */
export interface Asked {
	method: string;
	path: string;
	headers: IncomingHttpHeaders;
	// biome-ignore lint/suspicious/noExplicitAny: a body is what it is
	body: any;
}

/** A body to answer with status 200 as JSON, or more, or a function that answers by itself. */
export type Reply =
	| string
	| { status?: number; headers?: { [name: string]: string | string[] }; body?: string | Uint8Array; json?: unknown; id?: string }
	| ((response: ServerResponse) => void);

/** A server on a port of its own, which answers each request as `answer` says. */
export async function pdp(t: TestContext, answer: (asked: Asked, n: number) => Reply | Promise<Reply>) {
	const asked: Asked[] = [];
	const server = createServer(async (request, response) => {
		const parts: Buffer[] = [];
		for await (const part of request) parts.push(part as Buffer);
		const text = Buffer.concat(parts).toString();
		const one = { method: request.method ?? "", path: request.url ?? "", headers: request.headers, body: text && JSON.parse(text) };
		asked.push(one);
		const reply = await answer(one, asked.length);
		if (typeof reply === "function") return reply(response);
		const all = typeof reply === "string" ? { body: reply } : reply;
		response.statusCode = all.status ?? 200;
		if (response.statusCode !== 204) response.setHeader("Content-Type", "application/json");
		if (all.id) response.setHeader("X-Decision-Id", all.id);
		for (const [name, value] of Object.entries(all.headers ?? {})) response.setHeader(name, value);
		response.end(all.json === undefined ? all.body : JSON.stringify(all.json));
	});
	await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
	t.after(() => {
		server.closeAllConnections();
		server.close();
	});
	const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
	const client = (options: Partial<ClientOptions> = {}) => new Client({ url, retries: 0, ...options });
	return { url, asked, client, evaluations: () => asked.filter(({ path }) => path.includes("/access/v1/evaluation")) };
}

/** An obligation of a type of the service's own, as October's draft writes it. */
export const own = (id: string, type: string, properties: object = {}) => ({
	id,
	type: "custom",
	properties: { vendor: "policy-service", type, properties },
});

/** What a client adds to the context of a question if it can discharge these. */
export const adopting = (...supported_obligations: string[]) => ({
	supported_mandatory_extensions: ["obligations"],
	supported_obligations,
});

export const question: Question = {
	subject: { type: "user", id: "alice" },
	action: { name: "read" },
	resource: { type: "document", id: "1" },
};

/** The error of a call that has to fail. */
export async function no(call: Promise<unknown>): Promise<AuthorizationError> {
	let value: unknown;
	try {
		value = await call;
	} catch (error) {
		return error as AuthorizationError;
	}
	throw new Error(`it was a yes: ${value}`);
}
