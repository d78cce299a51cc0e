import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { after, describe, test } from "node:test";
import { getRequestListener } from "@hono/node-server";
import express, { type ErrorRequestHandler } from "express";
import express4 from "express4";
import { Hono } from "hono";
import { HTTPException } from "hono/http-exception";
import { protect, type Refusal } from "../src/express.js";
import { protect as guard } from "../src/hono.js";
import { Client, Denied, type Question } from "../src/index.js";

type Answer = (asked: IncomingMessage, res: ServerResponse, body: string) => void;
type Ask = (id: string) => Question | Promise<Question>;

/** A route that is protected: acted is how often it ran, errors are those that the app's own handler saw. */
interface App {
	url: string;
	acted: number;
	errors: unknown[];
}

async function listen(server: Server): Promise<string> {
	server.listen(0, "127.0.0.1");
	await once(server, "listening");
	after(() => {
		server.closeAllConnections();
		server.close();
	});
	return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** A PDP that answers as the test says. */
async function pdp(answer: Answer): Promise<{ client: Client; asked: string[] }> {
	const asked: string[] = [];
	const url = await listen(
		createServer(async (req, res) => {
			let body = "";
			for await (const chunk of req) body += chunk;
			asked.push(body);
			res.setHeader("X-Request-ID", req.headers["x-request-id"] ?? "");
			res.setHeader("Content-Type", "application/json");
			answer(req, res, body);
		}),
	);
	return { client: new Client({ url, retries: 0, timeout: 60_000 }), asked };
}

const says = (answer: unknown, status = 200, headers: Record<string, string> = {}): Answer => {
	return (_, res) => res.writeHead(status, headers).end(JSON.stringify(answer));
};

const question = (id: string): Question => ({
	subject: { type: "user", id: "ann" },
	action: { name: "read" },
	resource: { type: "doc", id },
});

/** How each framework protects the route /ID: with its own way to show errors, or with a handler of the app's. */
const frameworks: Record<string, (client: Client, ask: Ask, own?: boolean) => Promise<App>> = {
	express: (client, ask, own) => byExpress(express, client, ask, own),
	express4: (client, ask, own) => byExpress(express4, client, ask, own),
	hono: async (client, ask, own) => {
		const app: App = { url: "", acted: 0, errors: [] };
		const hono = new Hono();
		hono.get(
			"/:id",
			guard<"/:id">(client, (c) => ask(c.req.param("id"))),
			(c) => {
				app.acted++;
				return c.text(`done ${typeof c.var.permit.requestId}`);
			},
		);
		if (own) {
			hono.onError((error, c) => {
				app.errors.push(error);
				return error instanceof HTTPException ? c.text(error.message, error.status) : c.text("failed", 500);
			});
		}
		app.url = await listen(createServer(getRequestListener(hono.fetch)));
		return app;
	},
};

async function byExpress(framework: typeof express, client: Client, ask: Ask, own?: boolean): Promise<App> {
	const app: App = { url: "", acted: 0, errors: [] };
	const made = framework();
	made.get(
		"/:id",
		protect(client, (req) => ask(req.params.id ?? "")),
		(_, res) => {
			app.acted++;
			res.send(`done ${typeof res.locals.permit.requestId}`);
		},
	);
	made.get("/:id", (_, res) => {
		app.acted++;
		res.send("another route"); // which a guard may never let a request on to
	});
	const handler: ErrorRequestHandler = (error, _req, res, _next) => {
		app.errors.push(error);
		res.status(error.status ?? 500).send(error.message);
	};
	if (own) made.use(handler);
	made.set("env", "test"); // which shows the stack as development does, and logs nothing
	app.url = await listen(createServer(made));
	return app;
}

for (const [name, protectedBy] of Object.entries(frameworks)) {
	describe(name, { concurrency: true }, () => {
		test("a yes runs the route, with the permit", async () => {
			const { client, asked } = await pdp(says({ decision: true }));
			const app = await protectedBy(client, question);
			const got = await fetch(`${app.url}/d1`);
			assert.deepEqual([got.status, await got.text(), app.acted], [200, "done string", 1]);
			assert.equal(JSON.parse(asked[0] ?? "").resource.id, "d1");
		});

		test("a no is 403, and shows no reason but the one for users", async () => {
			const context = { reason: "secret_reason", reason_admin: { en: "secret" }, reason_user: { en: "Ask Mia." } };
			const { client } = await pdp(says({ decision: false, context }));
			for (const own of [false, true]) {
				const app = await protectedBy(client, question, own);
				const got = await fetch(`${app.url}/d1`);
				const text = await got.text();
				assert.deepEqual([got.status, app.acted, text.includes("secret")], [403, 0, false], text);
				if (own) {
					const [error] = app.errors as (Refusal | HTTPException)[];
					assert.equal(text, error?.message);
					assert.ok(error?.cause instanceof Denied && error.cause.kind === "denied");
				}
			}
		});

		test("a no without a reason for users says that access is denied", async () => {
			const { client } = await pdp(says({ decision: false, context: { reason: "secret_reason" } }));
			const app = await protectedBy(client, question, true);
			assert.equal(await (await fetch(`${app.url}/d1`)).text(), "access denied");
		});

		test("a PDP that cannot answer is 503, with its Retry-After", async () => {
			const { client } = await pdp(says({ error: "busy" }, 503, { "Retry-After": "7" }));
			const app = await protectedBy(client, question);
			const got = await fetch(`${app.url}/d1`);
			assert.deepEqual([got.status, got.headers.get("Retry-After"), app.acted], [503, "7", 0]);
		});

		test("a PDP that does not answer, or answers nonsense, is 503", async () => {
			const nonsense: Answer[] = [(req) => req.socket.destroy(), says({ decision: 1 }), says([true]), says({ decision: true }, 204)];
			for (const answer of nonsense) {
				const { client } = await pdp(answer);
				const app = await protectedBy(client, question);
				const got = await fetch(`${app.url}/d1`);
				assert.deepEqual([got.status, got.headers.get("Retry-After"), app.acted], [503, null, 0]);
			}
		});

		test("a question that cannot be made runs nothing, whatever it throws", async () => {
			const { client, asked } = await pdp(says({ decision: true }));
			for (const thrown of [undefined, null, "route", "router", 0, new Error("no user")]) {
				const app = await protectedBy(client, () => {
					throw thrown;
				});
				assert.equal((await fetch(`${app.url}/d1`)).status, 500, String(thrown));
				assert.equal(app.acted, 0, String(thrown));
			}
			assert.equal(asked.length, 0);
		});

		test("a question that is none is 503, and nothing is asked", async () => {
			const { client, asked } = await pdp(says({ decision: true, evaluations: [{ decision: true }] }));
			const handedThrough: unknown[] = [
				undefined,
				null,
				true,
				{},
				"d1",
				{ ...question("d1"), options: {} },
				{ evaluations: [question("d1")] },
			];
			for (const body of handedThrough) {
				const app = await protectedBy(client, () => body as Question);
				assert.equal((await fetch(`${app.url}/d1`)).status, 503, JSON.stringify(body));
				assert.equal(app.acted, 0);
			}
			assert.equal(asked.length, 0);
		});

		test("a request that is aborted gives up what it waits for", { timeout: 20_000 }, async () => {
			const { promise: left, resolve: leave } = Promise.withResolvers<void>();
			const { promise: held, resolve: hold } = Promise.withResolvers<void>();
			const { client } = await pdp((req) => {
				req.socket.once("close", () => leave());
				hold();
			});
			const app = await protectedBy(client, question, true);
			const browser = request(`${app.url}/d1`).on("error", () => {});
			browser.end();
			await held;
			browser.destroy();
			await left;
			assert.equal(app.acted, 0);
		});
	});
}
